package executor_test

import (
	"os"
	"slices"
	"syscall"
	"testing"

	"sallyport/executor"
	"sallyport/executor/backend"
)

// TestUsers wants that runs at once are different users, since the kernel has
// limits for each user, and that a user is had again once its run is over.
//
// probe: X21
// oracle: what the backend is told, and who owns the workspace
func TestUsers(t *testing.T) {
	h := start(t, func(c *executor.Config) { c.MaxRuns = 3 }) // with two users, or one where nobody else can be
	first, last := h.config.Service.UID, h.config.Service.UID+h.config.Users-1
	begin := func(want int) (id string) {
		t.Helper()
		id = h.begin(command("stat -c owner=%u .; sleep 60"))
		h.awaitText(id, "owner=")
		h.backend.set(func(b *processBackend) {
			i := slices.IndexFunc(b.specs, func(s backend.Spec) bool { return s.Name == id })
			if got := b.specs[i]; got.UID != want || got.GID != want {
				t.Errorf("the run is user %d of group %d, want %d", got.UID, got.GID, want)
			}
			info, err := os.Stat(b.specs[i].Workspace)
			if err != nil {
				t.Fatal(err)
			}
			if got := info.Sys().(*syscall.Stat_t).Uid; int(got) != want {
				t.Errorf("the workspace belongs to %d, want %d", got, want)
			}
		})
		return id
	}
	end := func(id string) {
		t.Helper()
		h.do("DELETE", "/v1/executions/"+id, "")
		h.finish(id)
	}
	one, two, three := begin(first), begin(last), begin(last)
	end(one)
	one = begin(first)
	for _, id := range []string{one, two, three} {
		end(id)
	}
}
