package executor_test

import (
	"context"
	"log/slog"
	"os"
	"strings"
	"testing"

	"sallyport/entrypoint/wire"
	"sallyport/executor/backend"
	"sallyport/executor/place"
	"sallyport/executor/tree"
)

// TestSeveralTasksInOnePlace parks a place and has two tasks enter it: they share the
// workspace, and each has only those of the kernel's counters that came while it was there.
func TestSeveralTasksInOnePlace(t *testing.T) {
	h := start(t)
	registry, err := backend.NewRegistry(h.config.Backends...)
	if err != nil {
		t.Fatal(err)
	}
	places := &place.Places{Backends: registry, Workspaces: t.TempDir(), Floor: 1}
	uid := h.config.Service.UID
	p, failure := places.Open(t.Context(), place.Spec{
		ID: "place", Backend: "docker", Image: "agent:test", UID: uid, GID: uid, Limits: testLimits.Limits,
		Growth: tree.Size{Bytes: 1 << 20, Entries: 100}, Redact: func(s string) string { return s }, Log: slog.New(slog.DiscardHandler),
	})
	if failure != nil {
		t.Fatal(failure)
	}
	defer p.Close()
	if _, err := p.TakeCell(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer p.GiveCell(true)
	if failure := p.Start(t.Context()); failure != nil {
		t.Fatal(failure)
	}
	defer p.Stop()
	session, failure := p.Ready(t.Context())
	if failure != nil {
		t.Fatal(failure)
	}
	count := func(killed, refused string) {
		h.backend.set(func(b *processBackend) {
			b.cgroup = "/sys/fs/cgroup/memory.events:oom_kill " + killed + "\n/sys/fs/cgroup/pids.events:max " + refused
		})
	}
	run := func(script string) string {
		t.Helper()
		var out strings.Builder
		job := wire.Job{ID: "job", Argv: []string{"sh", "-c", script}, Dir: "/workspace", Env: []string{"PATH=" + os.Getenv("PATH")}}
		if exit, err := session.Run(t.Context(), job, nil, wire.Handlers{Stdout: func(p []byte) { out.Write(p) }}); err != nil || exit.Code != 0 {
			t.Fatalf("%q: %+v, %v", script, exit, err)
		}
		return out.String()
	}
	ctx, fail := context.WithCancelCause(t.Context())
	defer fail(nil)
	for _, task := range []struct {
		script, out     string
		killed, refused string // as the kernel has counted them since the sandbox started
		want            place.Counters
	}{
		{"echo first > file", "", "2", "3", place.Counters{Killed: 2, Refused: 3}},
		{"cat file", "first\n", "2", "3", place.Counters{}},
		{"cat file", "first\n", "3", "7", place.Counters{Killed: 1, Refused: 4}},
	} {
		if failure := p.Enter(ctx, fail); failure != nil {
			t.Fatal(failure)
		}
		if out := run(task.script); out != task.out {
			t.Errorf("%s: %q", task.script, out)
		}
		count(task.killed, task.refused)
		if got := p.Counted(true); got != task.want {
			t.Errorf("%s: %+v, want %+v", task.script, got, task.want)
		}
		p.Leave()
	}
}
