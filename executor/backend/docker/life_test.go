package docker_test

import (
	"context"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"

	"sallyport/entrypoint/wire"
	"sallyport/executor/backend"
	"sallyport/executor/backend/docker"
	"sallyport/executor/backend/docker/dockertest"
	"sallyport/executor/backend/docker/engine"
)

// TestMemoryBomb has a program take all memory.
//
// probe: C8
// oracle: the kernel's count for the sandbox's control group; the sandbox lives on
func TestMemoryBomb(t *testing.T) {
	s := dockertest.New(t)
	s.EchoGate()
	sandbox, session := start(t, s, s.Spec(acquire(t, s.Cells(0))))
	if oom, err := sandbox.OOMKilled(t.Context()); err != nil || oom {
		t.Fatalf("before: %v, %v", oom, err)
	}
	_, exit := run(t, session, "memory")
	if exit.Signal != "KILL" {
		t.Errorf("exit %+v, want KILL", exit)
	}
	// The kernel's own count, in the sandbox's control group.
	counts, _ := run(t, session, "cat", "/sys/fs/cgroup/memory/memory.oom_control")
	if !strings.Contains(counts, "oom_kill ") {
		counts, _ = run(t, session, "cat", "/sys/fs/cgroup/memory.events") // version 2
	}
	if !strings.Contains(counts, "oom_kill 1\n") {
		t.Errorf("the kernel counts %q", counts)
	}
	// An engine may be unable to watch control groups (with version 1, when somebody
	// mounts a hierarchy elsewhere): then it says so of no container.
	if oom, err := sandbox.OOMKilled(t.Context()); err != nil || oom != engineNotices(t, s) {
		t.Errorf("out of memory: %v, %v; the engine says %v of a plain container", oom, err, !oom)
	}
	if out, _ := run(t, session, "cat", "/etc/hosts"); out == "" {
		t.Error("the sandbox does not live on")
	}
}

// engineNotices says whether the engine notices that a plain container runs out of
// memory.
func engineNotices(t *testing.T, s *dockertest.Stack) bool {
	t.Helper()
	id := s.Run(container.Config{Image: s.AgentImage, Entrypoint: []string{"/tool", "memory"}, Labels: s.Labels("control")},
		container.HostConfig{Resources: container.Resources{Memory: 64 << 20, MemorySwap: 64 << 20}}, "")
	var state *container.State
	eventually(t, "the plain container has ended", func() bool {
		inspected, err := s.API.ContainerInspect(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		state = inspected.State
		return !state.Running
	})
	return state.OOMKilled
}

// TestProcessBomb has a program fork without end.
//
// probe: C8
// oracle: the number of processes; the sandbox lives on
func TestProcessBomb(t *testing.T) {
	s := dockertest.New(t)
	s.EchoGate()
	spec := s.Spec(acquire(t, s.Cells(0)))
	_, session := start(t, s, spec)
	out, _ := run(t, session, "processes")
	if n, err := strconv.Atoi(strings.TrimSpace(out)); err != nil || n < 1 || int64(n) > spec.Limits.PIDs {
		t.Errorf("%q processes, want 1 to %d", out, spec.Limits.PIDs)
	}
	if out, _ := run(t, session, "cat", "/etc/hosts"); out == "" {
		t.Error("the sandbox does not live on")
	}
}

// TestTCPMemoryBomb has a program fill the buffers of connections to itself, which
// come out of what the host's kernel has for all connections of the machine.
//
// probe: C8, X30
// oracle: how much the kernel took of the sandbox; the connections of another one
func TestTCPMemoryBomb(t *testing.T) {
	s := dockertest.New(t)
	s.EchoGate()
	cells := s.Cells(0)
	cell := acquire(t, cells)
	_, other := start(t, s, s.Spec(cell))
	spec := s.Spec(acquire(t, cells))
	spec.Limits.NoFile = 1024
	_, session := start(t, s, spec)

	took, most := buffered(t, session), s.Engine.TCPLimit(spec.Limits)>>20+8 // a segment for each connection
	if took == 0 || took > most {
		t.Errorf("the kernel buffered %d MiB for the sandbox, want 1 to %d", took, most)
	}
	for range 50 {
		if out, _ := run(t, other, "dial", "tcp", cell.Gate.String()+":443"); out != "word\n" {
			t.Fatalf("another sandbox meanwhile: %q", out)
		}
	}
}

// buffered has a sandbox fill its buffers until the test ends, and returns how many
// MiB they took.
func buffered(t *testing.T, session *wire.Session) int64 {
	t.Helper()
	said := make(chan string, 1)
	var ended sync.WaitGroup
	ended.Go(func() {
		// The error is that the session was closed at the end of the test.
		session.Run(context.Background(), wire.Job{ID: "buffers", Argv: []string{"/tool", "buffers"}, Dir: backend.WorkspaceDir},
			nil, wire.Handlers{Stdout: func(p []byte) { said <- string(p) }})
	})
	t.Cleanup(func() {
		session.Close()
		ended.Wait()
	})
	select {
	case out := <-said:
		n, err := strconv.ParseInt(strings.TrimSpace(out), 10, 64)
		if err != nil {
			t.Fatalf("the sandbox said %q", out)
		}
		return n
	case <-time.After(time.Minute):
		t.Fatal("the sandbox does not come to an end")
	}
	return 0
}

func TestWaitAndRemove(t *testing.T) {
	s := dockertest.New(t)
	s.EchoGate()
	cell := acquire(t, s.Cells(0))
	sandbox, session := start(t, s, s.Spec(cell))
	session.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if exit, err := sandbox.Wait(ctx); err != nil || exit.Code != 0 || exit.OOMKilled {
		t.Errorf("after the end of standard input: %+v, %v", exit, err)
	}
	if err := sandbox.Remove(ctx); err != nil {
		t.Error(err)
	}

	sandbox, _ = start(t, s, s.Spec(cell))
	ended, stop := context.WithCancel(t.Context())
	stop()
	if err := sandbox.Remove(ended); err != nil { // of a running one, by a caller whose time is over
		t.Error(err)
	}
	if err := sandbox.Remove(ended); err != nil {
		t.Error("again:", err)
	}
	if left := s.Containers(engine.RoleSandbox); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
	if _, err := sandbox.Wait(ctx); err == nil {
		t.Error("the end of a removed sandbox is known")
	}
}

func TestExecutorDies(t *testing.T) {
	s := dockertest.New(t)
	s.EchoGate()
	sandbox, session := start(t, s, s.Spec(acquire(t, s.Cells(0))))
	_ = session
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	// The end of the connection is all that the engine sees of a killed executor.
	docker.Disconnect(sandbox)
	if exit, err := sandbox.Wait(ctx); err != nil {
		t.Errorf("%+v, %v", exit, err)
	}
}

// TestGivenUpStart gives up at every stage: nothing may be left of it.
func TestGivenUpStart(t *testing.T) {
	s := dockertest.New(t)
	s.EchoGate()
	cells := s.Cells(0)
	cell := acquire(t, cells)
	b := s.Backend()
	for patience := time.Duration(0); patience < 200*time.Millisecond; patience += 10 * time.Millisecond {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		if sandbox, err := b.Start(ctx, s.Spec(cell)); err == nil {
			sandbox.Remove(ctx)
		}
		if another, err := cells.Acquire(ctx); err == nil {
			cells.Discard(another)
		}
		cancel()
	}
	if left := s.Containers(engine.RoleSandbox); len(left) != 0 {
		t.Errorf("sandboxes left: %v", left)
	}
	if err := cells.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if left := s.Containers(engine.RoleCell); len(left) != 0 {
		t.Errorf("keepers left: %v", left)
	}
	if left := s.Networks(); len(left) != 0 {
		t.Errorf("networks left: %v", left)
	}
}

func TestStartRefuses(t *testing.T) {
	s := dockertest.New(t)
	s.EchoGate()
	cell := acquire(t, s.Cells(0))
	b := s.Backend()
	for name, test := range map[string]struct {
		change func(*backend.Spec)
		want   string
	}{
		"root":                {func(s *backend.Spec) { s.UID = 0 }, "never runs as root"},
		"root group":          {func(s *backend.Spec) { s.GID = 0 }, "never runs as root"},
		"negative user":       {func(s *backend.Spec) { s.UID = -1 }, "never runs as root"},
		"zero":                {func(s *backend.Spec) { *s = backend.Spec{} }, "is not an identifier"},
		"run is a path":       {func(s *backend.Spec) { s.Name = "../x" }, "is not an identifier"},
		"cell is a path":      {func(s *backend.Spec) { s.Cell.ID = "../x" }, "no cell"},
		"no cell":             {func(s *backend.Spec) { s.Cell = backend.Cell{} }, "no cell"},
		"no limits":           {func(s *backend.Spec) { s.Limits = backend.Limits{} }, "all are required"},
		"no memory limit":     {func(s *backend.Spec) { s.Limits.MemoryBytes = 0 }, "all are required"},
		"workspace is root":   {func(s *backend.Spec) { s.Workspace = "/tmp/.." }, "workspace"},
		"relative workspace":  {func(s *backend.Spec) { s.Workspace = "x" }, "workspace"},
		"missing workspace":   {func(s *backend.Spec) { s.Workspace += "/no" }, "bind source path does not exist"},
		"missing image":       {func(s *backend.Spec) { s.Image = "sallyport-test-none:none" }, "is not on the engine"},
		"no entrypoint in it": {func(s2 *backend.Spec) { s2.Image = s.CellImage }, "/sallyport/entrypoint"},
		"no such holder":      {func(s *backend.Spec) { s.Cell.Holder = "sallyport-test-none" }, "sallyport-test-none"},
	} {
		t.Run(name, func(t *testing.T) {
			spec := s.Spec(cell)
			test.change(&spec)
			sandbox, err := b.Start(t.Context(), spec)
			if err == nil {
				sandbox.Remove(t.Context())
				t.Fatal("it started")
			}
			if !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %q, want one with %q", err, test.want)
			}
			if left := s.Containers(engine.RoleSandbox); len(left) != 0 {
				t.Errorf("left: %v", left)
			}
		})
	}
	start(t, s, s.Spec(cell)) // positive control
}
