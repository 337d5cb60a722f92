package docker

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/docker/docker/api/types"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/events"
	"github.com/docker/docker/api/types/filters"
	"github.com/docker/docker/pkg/stdcopy"

	"sallyport/executor/backend"
)

// oomPatience is how long a no to the question whether a sandbox ran out of memory
// is waited for: the engine hears of it a moment after the kill.
const oomPatience = 500 * time.Millisecond

// killed is the exit code of a process that SIGKILL ended.
const killed = 128 + 9

// sandbox is a started container.
type sandbox struct {
	engine  *Engine
	id      string
	streams types.HijackedResponse
	stdout  *io.PipeReader
	stderr  tail
	oom     atomic.Bool   // the engine has said that the memory limit was hit
	detach  func()        // closes the streams and stops listening, once
	demuxed chan struct{} // closed when nothing more comes from the streams
}

// newSandbox takes over the attached streams of a container that has not started:
// one goroutine sorts standard output from standard error, the other listens for
// the engine's word on memory. Both end with detach.
func newSandbox(e *Engine, id string, streams types.HijackedResponse) *sandbox {
	stdout, w := io.Pipe()
	s := &sandbox{engine: e, id: id, streams: streams, stdout: stdout, demuxed: make(chan struct{})}
	ctx, stop := context.WithCancel(context.Background())
	var listener sync.WaitGroup
	listener.Go(func() { s.listen(ctx) })
	s.detach = sync.OnceFunc(func() {
		stop()
		streams.Close()
		stdout.Close()
		listener.Wait()
		<-s.demuxed
	})
	go func() {
		defer close(s.demuxed)
		_, err := stdcopy.StdCopy(w, &s.stderr, streams.Reader)
		w.CloseWithError(err) // nil means io.EOF to the reader
	}()
	return s
}

// listen waits for the engine's event that the memory limit was hit. The
// container's state may say so only when PID 1 has ended (measured on 20.10),
// which a killed job does not make it do.
func (s *sandbox) listen(ctx context.Context) {
	word, failed := s.engine.api.Events(ctx, events.ListOptions{
		Since: strconv.FormatInt(time.Now().Unix(), 10),
		Filters: filters.NewArgs(filters.Arg("type", string(events.ContainerEventType)),
			filters.Arg("container", s.id), filters.Arg("event", string(events.ActionOOM))),
	})
	select {
	case <-word:
		s.oom.Store(true)
	case <-failed: // the state at the end is what is left
	}
}

// handle is the sandbox as the executor has it.
func (s *sandbox) handle() *backend.Sandbox {
	return &backend.Sandbox{ID: s.id, Stdin: stdin{s.streams}, Stdout: s.stdout, Life: s}
}

// stdin is the standard input of a sandbox: closing it is end of file to PID 1 and leaves
// standard output open.
type stdin struct{ streams types.HijackedResponse }

func (w stdin) Write(p []byte) (int, error) { return w.streams.Conn.Write(p) }
func (w stdin) Close() error                { return w.streams.CloseWrite() }

// Wait implements backend.Life. Once the sandbox is removed the engine knows
// nothing of its end any more, and Wait fails.
func (s *sandbox) Wait(ctx context.Context) (backend.Exit, error) {
	waitCtx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended, failed := s.engine.api.ContainerWait(waitCtx, s.id, container.WaitConditionNotRunning)
	select {
	case err := <-failed:
		return backend.Exit{}, fmt.Errorf("docker: wait for sandbox %s: %w", s.id, err)
	case <-ended:
	}
	state, err := s.state(ctx)
	if err != nil {
		return backend.Exit{}, err
	}
	exit := backend.Exit{Code: state.ExitCode, OOMKilled: state.OOMKilled || s.oom.Load(), Stderr: s.stderr.String()}
	if exit.Code == killed && !exit.OOMKilled {
		exit.OOMKilled, err = s.OOMKilled(ctx)
	}
	return exit, err
}

// OOMKilled implements backend.Life. Ask it when something was killed: a yes
// comes at once, a no only after the engine had time to notice.
func (s *sandbox) OOMKilled(ctx context.Context) (bool, error) {
	for deadline := time.Now().Add(oomPatience); ; {
		state, err := s.state(ctx)
		if err != nil {
			return false, err
		}
		oom := state.OOMKilled || s.oom.Load()
		if oom || time.Now().After(deadline) {
			return oom, nil
		}
		if err := pause(ctx); err != nil {
			return false, err
		}
	}
}

func (s *sandbox) state(ctx context.Context) (*container.State, error) {
	inspected, err := s.engine.api.ContainerInspect(ctx, s.id)
	if err != nil {
		return nil, fmt.Errorf("docker: state of sandbox %s: %w", s.id, err)
	}
	if inspected.ContainerJSONBase == nil || inspected.State == nil {
		return nil, fmt.Errorf("docker: the engine reports no state of sandbox %s", s.id)
	}
	return inspected.State, nil
}

// Remove implements backend.Life. It goes on, within its own time limit, when
// ctx has ended.
func (s *sandbox) Remove(ctx context.Context) error {
	ctx, cancel := steady(ctx)
	defer cancel()
	err := s.engine.removeContainer(ctx, s.id)
	s.detach()
	if err != nil {
		return fmt.Errorf("docker: %w", err)
	}
	return nil
}

// pause waits a moment between two questions to the engine.
func pause(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(25 * time.Millisecond):
		return nil
	}
}

// tailBytes is how much of a standard error is kept.
const tailBytes = 4096

// A tail keeps the end of what is written to it.
type tail struct {
	mu  sync.Mutex
	buf []byte // guarded by mu; at most tailBytes
}

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.buf = append(t.buf, p[max(0, len(p)-tailBytes):]...)
	t.buf = append(t.buf[:0], t.buf[max(0, len(t.buf)-tailBytes):]...)
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.buf)
}
