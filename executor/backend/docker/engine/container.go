package engine

import (
	"context"
	"errors"
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

// Launch creates a container, attaches to its streams and starts it. When it fails
// nothing is left.
func (e *Engine) Launch(
	ctx context.Context, name string, config *container.Config, host *container.HostConfig,
) (_ *Container, err error) {
	began := time.Now()
	id, err := e.Create(ctx, name, config, host, nil)
	if err != nil {
		return nil, fmt.Errorf("docker: create %s: %w", name, err)
	}
	defer func() {
		if err != nil {
			ctx, cancel := Steady(ctx)
			defer cancel()
			err = errors.Join(err, e.RemoveContainer(ctx, id))
		}
	}()
	createdAt := time.Now()
	streams, err := e.API.ContainerAttach(ctx, id, container.AttachOptions{
		Stream: true, Stdin: true, Stdout: true, Stderr: true,
	})
	if err != nil {
		return nil, fmt.Errorf("docker: attach to %s: %w", name, err)
	}
	attachedAt := time.Now()
	c := e.Attached(id, streams)
	if err := e.API.ContainerStart(ctx, id, container.StartOptions{}); err != nil {
		c.Detach()
		return nil, fmt.Errorf("docker: start %s: %w", name, err)
	}
	e.Log.Debug("sandbox started", "name", name, "container", id,
		"create_ms", createdAt.Sub(began).Milliseconds(),
		"attach_ms", attachedAt.Sub(createdAt).Milliseconds(),
		"start_ms", time.Since(attachedAt).Milliseconds())
	return c, nil
}

// A Container is one whose streams are attached.
type Container struct {
	ID     string
	Stdout *io.PipeReader
	stderr tail // the end of standard error

	engine  *Engine
	streams types.HijackedResponse
	oom     atomic.Bool   // the engine has said that the memory limit was hit
	demuxed chan struct{} // closed when nothing more comes from the streams
	detach  func()        // see Detach
}

// Attached takes over the attached streams of a container that has not started:
// one goroutine sorts standard output from standard error, the other listens for
// the engine's word on memory. Both end with Detach.
func (e *Engine) Attached(id string, streams types.HijackedResponse) *Container {
	stdout, w := io.Pipe()
	c := &Container{ID: id, Stdout: stdout, engine: e, streams: streams, demuxed: make(chan struct{})}
	ctx, stop := context.WithCancel(context.Background())
	var listener sync.WaitGroup
	listener.Go(func() { c.listen(ctx) })
	c.detach = sync.OnceFunc(func() {
		stop()
		streams.Close()
		stdout.Close()
		listener.Wait()
		<-c.demuxed
	})
	go func() {
		defer close(c.demuxed)
		_, err := stdcopy.StdCopy(w, &c.stderr, streams.Reader)
		w.CloseWithError(err) // nil means io.EOF to the reader
	}()
	return c
}

// listen waits for the engine's event that the memory limit was hit. The
// container's state may say so only when PID 1 has ended (measured on 20.10),
// which a killed job does not make it do.
func (c *Container) listen(ctx context.Context) {
	word, failed := c.engine.API.Events(ctx, events.ListOptions{
		Since: strconv.FormatInt(time.Now().Unix(), 10),
		Filters: filters.NewArgs(filters.Arg("type", string(events.ContainerEventType)),
			filters.Arg("container", c.ID), filters.Arg("event", string(events.ActionOOM))),
	})
	select {
	case <-word:
		c.oom.Store(true)
	case <-failed: // the state at the end is what is left
	}
}

// Detach closes the streams and stops listening.
func (c *Container) Detach() { c.detach() }

// Stderr is the end of what came on standard error so far.
func (c *Container) Stderr() string { return c.stderr.String() }

// Done is closed when nothing more comes from the streams.
func (c *Container) Done() <-chan struct{} { return c.demuxed }

// Sandbox is the container as the executor has it.
func (c *Container) Sandbox() *backend.Sandbox {
	return &backend.Sandbox{ID: c.ID, Stdin: stdin{c.streams}, Stdout: c.Stdout, Life: c}
}

// stdin is the standard input of a container: closing it is end of file to PID 1 and
// leaves standard output open.
type stdin struct{ streams types.HijackedResponse }

func (w stdin) Write(p []byte) (int, error) { return w.streams.Conn.Write(p) }
func (w stdin) Close() error                { return w.streams.CloseWrite() }

// Wait implements backend.Life. Once the sandbox is removed the engine knows
// nothing of its end any more, and Wait fails.
func (c *Container) Wait(ctx context.Context) (backend.Exit, error) {
	waitCtx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended, failed := c.engine.API.ContainerWait(waitCtx, c.ID, container.WaitConditionNotRunning)
	select {
	case err := <-failed:
		return backend.Exit{}, fmt.Errorf("docker: wait for sandbox %s: %w", c.ID, err)
	case <-ended:
	}
	state, err := c.state(ctx)
	if err != nil {
		return backend.Exit{}, err
	}
	exit := backend.Exit{Code: state.ExitCode, OOMKilled: state.OOMKilled || c.oom.Load(), Stderr: c.stderr.String()}
	if exit.Code == killed && !exit.OOMKilled {
		exit.OOMKilled, err = c.OOMKilled(ctx)
	}
	return exit, err
}

// OOMKilled implements backend.Life. Ask it when something was killed: a yes
// comes at once, a no only after the engine had time to notice.
func (c *Container) OOMKilled(ctx context.Context) (bool, error) {
	for deadline := time.Now().Add(oomPatience); ; {
		state, err := c.state(ctx)
		if err != nil {
			return false, err
		}
		oom := state.OOMKilled || c.oom.Load()
		if oom || time.Now().After(deadline) {
			return oom, nil
		}
		if err := pause(ctx); err != nil {
			return false, err
		}
	}
}

func (c *Container) state(ctx context.Context) (*container.State, error) {
	inspected, err := c.engine.API.ContainerInspect(ctx, c.ID)
	if err != nil {
		return nil, fmt.Errorf("docker: state of sandbox %s: %w", c.ID, err)
	}
	if inspected.ContainerJSONBase == nil || inspected.State == nil {
		return nil, fmt.Errorf("docker: the engine reports no state of sandbox %s", c.ID)
	}
	return inspected.State, nil
}

// Remove implements backend.Life. It goes on, within its own time limit, when
// ctx has ended.
func (c *Container) Remove(ctx context.Context) error {
	ctx, cancel := Steady(ctx)
	defer cancel()
	err := c.engine.RemoveContainer(ctx, c.ID)
	c.detach()
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
