package executor_test

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sallyport/executor"
	"sallyport/executor/api"
	"sallyport/executor/place"
	"sallyport/executor/plan"
	"sallyport/executor/tree"
)

// onMemory puts the executor's state on a file system that hardly anybody else writes
// to, and has the floor at that much less than what it has left.
func onMemory(t *testing.T, below int64) func(*executor.Config) {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "sallyport-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	space, err := tree.SpaceAt(dir)
	if err != nil {
		t.Fatal(err)
	}
	return func(c *executor.Config) {
		c.State = filepath.Join(dir, "state")
		c.DiskFloor = place.Floor(space.Bytes - below)
	}
}

func wantShort(t *testing.T, res api.Result) {
	t.Helper()
	wantCode(t, res, api.CodeDisk)
	if !res.Error.Retryable || res.Error.Details["floorBytes"] == nil {
		t.Errorf("error = %+v", res.Error)
	}
}

// TestUnlinkedFile fills the disk with a file that has no name, so that no look at
// the workspace finds it.
//
// probe: C14
// oracle: the code of the result, the space that is left afterwards, and the next run
func TestUnlinkedFile(t *testing.T) {
	h := start(t, onMemory(t, 16<<20), limit(func(l *plan.Limits) { l.WorkspaceBytes = 1 << 20 }))
	if res := h.post(command("exec 3>f; rm f; head -c 4000000 /dev/zero >&3; sleep 5; echo fine")); !res.Success {
		t.Fatalf("above the floor, the control: %v", res.Error)
	}
	wantShort(t, h.post(command("exec 3>f; rm f; head -c 48000000 /dev/zero >&3; sleep 60")))
	h.wantClean()
	if res := h.post(command("echo fine")); !res.Success {
		t.Errorf("once there is room: %v", res.Error)
	}
}

// TestLargestEndsFirst has one of two runs go below the floor.
func TestLargestEndsFirst(t *testing.T) {
	h := start(t, onMemory(t, 16<<20))
	small := h.begin(command("head -c 1000000 /dev/zero > f; echo begun; while ! [ -e end ]; do sleep 0.1; done; echo fine"))
	h.awaitText(small, "begun")
	wantShort(t, h.post(command("head -c 48000000 /dev/zero > f; sleep 60")))
	end := filepath.Join(h.config.State, "workspaces", small, "end")
	if err := os.WriteFile(end, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if res := h.finish(small); !res.Success || !strings.HasSuffix(res.Output, "fine\n") {
		t.Errorf("the small one: %+v", res.Error)
	}
}

// TestFloor asks for runs while the disk is short of space, at once and from the queue.
func TestFloor(t *testing.T) {
	h := start(t, onMemory(t, 16<<20), func(c *executor.Config) { c.MaxRuns = 1 })
	first := h.begin(command("echo begun; sleep 60"))
	h.awaitText(first, "begun")
	queued := h.begin(command("true"))
	filled := filepath.Join(h.config.State, "others")
	if err := os.WriteFile(filled, make([]byte, 48<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	resp, data := h.do(http.MethodPost, "/v1/executions", command("true"))
	p := decode[api.Problem](t, resp, data, http.StatusServiceUnavailable)
	if p.Code != api.CodeDisk || !p.Retryable || p.Details["floorBytes"] == nil || resp.Header.Get("Retry-After") == "" {
		t.Errorf("problem = %+v", p)
	}
	h.later()
	if resp, data := h.do(http.MethodGet, "/readyz", ""); resp.StatusCode != http.StatusServiceUnavailable || !strings.Contains(string(data), "MiB") {
		t.Errorf("readiness: %s %s", resp.Status, data)
	}
	wantShort(t, h.finish(first))
	wantShort(t, h.finish(queued))
	if len(h.backend.specs) != 1 {
		t.Errorf("%d sandboxes were started", len(h.backend.specs))
	}
	if err := os.Remove(filled); err != nil {
		t.Fatal(err)
	}
	if res := h.post(command("true")); !res.Success {
		t.Errorf("once there is room: %v", res.Error)
	}
	h.later()
	if ready := get[api.Readiness](h, "/readyz"); !ready.Ready {
		t.Errorf("readiness = %+v", ready)
	}
}
