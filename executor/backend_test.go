package executor_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"sallyport/entrypoint/wire"
	"sallyport/executor/backend"
)

// runDir is a directory that a container has to itself.
const runDir = "/run/sallyport"

// A processBackend starts the real entrypoint as a process of this machine. What
// the container would give it, the workspace's place and the home, is put right
// in the job as it goes by.
type processBackend struct {
	live atomic.Int64 // sandboxes that were not removed

	mu     sync.Mutex
	fail   error    // Start returns it
	role   string   // what runs instead of the entrypoint, if not empty
	oom    bool     // the engine says that memory ran out
	cgroup string   // what the kernel counts
	pi     string   // the shell script that runs instead of pi
	git    []string // what runs instead of a checkout, if not empty
	specs  []backend.Spec
	jobs   []wire.Job // as the executor sent them
	last   *processSandbox
}

func (b *processBackend) set(change func(*processBackend)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	change(b)
}

func (b *processBackend) Start(_ context.Context, spec backend.Spec) (*backend.Sandbox, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.specs = append(b.specs, spec)
	if b.fail != nil {
		return nil, b.fail
	}
	home, err := os.MkdirTemp("", "sallyport-home-")
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), roleVariable+"="+cmp.Or(b.role, "entrypoint"))
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	b.live.Add(1)
	r, w := io.Pipe()
	s := &processSandbox{b: b, cmd: cmd, stdin: w, home: home, ended: make(chan struct{})}
	go b.relay(r, in, spec.Workspace, home)
	b.last = s
	return &backend.Sandbox{ID: fmt.Sprint(cmd.Process.Pid), ImageDigest: "sha256:" + strings.Repeat("ab", 32), Stdin: w, Stdout: out, Life: s}, nil
}

// relay carries frames to the entrypoint.
func (b *processBackend) relay(r *io.PipeReader, in io.WriteCloser, workspace, home string) {
	defer in.Close()
	frames, out := wire.NewReader(r), wire.NewWriter(in)
	for {
		f, err := frames.Next()
		if err == nil && f.Type == wire.FrameJob {
			f.Payload, err = b.settle(f.Payload, workspace, home)
		}
		if err == nil && f.Type == wire.FrameUpdate {
			f.Payload = bytes.ReplaceAll(f.Payload, []byte(runDir), []byte(home+runDir))
		}
		if err == nil {
			err = out.Write(f.Type, f.Payload)
		}
		if err != nil {
			r.CloseWithError(err)
			return
		}
	}
}

func (b *processBackend) settle(payload []byte, workspace, home string) ([]byte, error) {
	var job wire.Job
	if err := json.Unmarshal(payload, &job); err != nil {
		return nil, err
	}
	if job.ID == "counters" { // the cgroup of the test is not the sandbox's
		b.set(func(b *processBackend) { job.Argv = []string{"/bin/echo", b.cgroup} })
		return json.Marshal(job)
	}
	b.set(func(b *processBackend) { b.jobs = append(b.jobs, job) })
	place := func(path string) string {
		if rest, ok := strings.CutPrefix(path, backend.HomeDir); ok {
			return filepath.Join(home, rest)
		}
		path = strings.ReplaceAll(path, runDir, home+runDir)
		return strings.Replace(path, backend.WorkspaceDir, workspace, 1)
	}
	if job.Argv[0] == "pi" {
		b.set(func(b *processBackend) { job.Argv = []string{"sh", "-c", b.pi} })
	}
	if job.Argv[0] == "/sallyport/entrypoint" {
		job.Argv = []string{os.Args[0]}
		job.Env = append(job.Env, roleVariable+"=checkout", "GIT_ALLOW_PROTOCOL=none") // it must reach nobody
		b.set(func(b *processBackend) {
			if len(b.git) > 0 {
				job.Argv = b.git
			}
		})
	}
	job.Dir, job.ExtraCA, job.Shims = place(job.Dir), nil, nil
	for i := range job.Files {
		job.Files[i].Path = place(job.Files[i].Path)
	}
	for i := range job.Argv { // where its worker lies
		job.Argv[i] = strings.ReplaceAll(job.Argv[i], wire.WorkerDir, home+wire.WorkerDir)
	}
	for i, e := range job.Env {
		name, value, _ := strings.Cut(e, "=")
		job.Env[i] = name + "=" + place(value)
	}
	return json.Marshal(job)
}

type processSandbox struct {
	b     *processBackend
	cmd   *exec.Cmd
	stdin io.WriteCloser
	home  string

	once  sync.Once
	ended chan struct{}
	state *os.ProcessState
	gone  sync.Once
}

// reap waits for the process; only one caller does.
func (s *processSandbox) reap() {
	s.once.Do(func() {
		s.state, _ = s.cmd.Process.Wait()
		close(s.ended)
	})
}

func (s *processSandbox) Wait(ctx context.Context) (backend.Exit, error) {
	go s.reap()
	select {
	case <-s.ended:
		return backend.Exit{Code: s.state.ExitCode(), Stderr: "last words\n"}, nil
	case <-ctx.Done():
		return backend.Exit{}, ctx.Err()
	}
}

func (s *processSandbox) OOMKilled(context.Context) (bool, error) {
	s.b.mu.Lock()
	defer s.b.mu.Unlock()
	return s.b.oom, nil
}

// Remove ends the entrypoint, which ends what it has started.
func (s *processSandbox) Remove(ctx context.Context) error {
	s.stdin.Close()
	go s.reap()
	select {
	case <-s.ended:
	case <-time.After(5 * time.Second):
		s.kill()
		<-s.ended
	case <-ctx.Done():
		return ctx.Err()
	}
	s.gone.Do(func() { s.b.live.Add(-1) })
	return os.RemoveAll(s.home)
}

// kill is what an engine that dies does to a sandbox.
func (s *processSandbox) kill() { s.cmd.Process.Kill() }

// testCells lends cells that are only addresses.
type testCells struct {
	out, discarded atomic.Int64
	made           atomic.Int64
}

func (c *testCells) Acquire(ctx context.Context) (backend.Cell, error) {
	if err := ctx.Err(); err != nil {
		return backend.Cell{}, err
	}
	n := c.made.Add(1)
	if n >= 1<<12 {
		return backend.Cell{}, errors.New("no further cells")
	}
	c.out.Add(1)
	net := [3]byte{172, byte(16 + n>>8), byte(n)}
	base := netip.AddrFrom4([4]byte{net[0], net[1], net[2], 0})
	return backend.Cell{
		ID:      fmt.Sprintf("cell%d", n),
		Holder:  "nobody",
		Prefix:  netip.PrefixFrom(base, 28),
		Gate:    netip.AddrFrom4([4]byte{net[0], net[1], net[2], 2}),
		Sandbox: netip.AddrFrom4([4]byte{net[0], net[1], net[2], 3}),
	}, nil
}

func (c *testCells) Count() (ready, lent int) { return 3, int(c.out.Load()) }

func (c *testCells) Put(backend.Cell) { c.out.Add(-1) }

func (c *testCells) Discard(backend.Cell) {
	c.out.Add(-1)
	c.discarded.Add(1)
}
