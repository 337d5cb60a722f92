// Package pid1 is what runs as PID 1 of every sandbox, by Main.
//
// A job's process gets exactly the environment and the files that its job names,
// descriptors 0 to 2 and nothing else, and when it has ended every other process of
// the sandbox is killed, so that a sandbox can take one job after another. When the
// executor is gone, the sandbox ends by itself.
//
// PID 1 keeps the agent, which has the same user, from its own memory and
// descriptors. An agent can still end its own sandbox, by limits that it may set on
// a process of its own user; that is a lost run, never a wider one.
package pid1

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"sallyport/entrypoint/wire"
)

// Main is PID 1 of a sandbox: it says that it is ready and takes jobs from stdin,
// one after another, until stdin ends, a write to stdout fails, the peer breaks
// the protocol or ctx ends. Then it kills every other process and returns; the
// caller must exit. The error is nil where stdin ended in order.
//
// It takes over its process: signals, children and descriptors. Where it is not
// PID 1 it reaches its descendants only.
func Main(ctx context.Context, stdin io.Reader, stdout io.Writer) error {
	procs, err := takeOver()
	if err != nil {
		return fmt.Errorf("take over the process: %w", err)
	}
	executor := newPeer(stdout)
	p := &pid1{procs: procs, executor: executor, updates: newUpdater(executor)}
	ready := wire.Ready{Version: wire.ProtocolVersion, PID: os.Getpid(), UID: os.Getuid()}
	if err := executor.out.WriteJSON(wire.FrameReady, ready); err != nil {
		return fmt.Errorf("say ready: %w", err)
	}
	uctx, stop := context.WithCancel(ctx)
	defer stop()
	go p.updates.run(uctx)
	ended := make(chan error, 1)
	go func() { ended <- p.dispatch(wire.NewReader(stdin)) }()
	select {
	case err = <-ended:
	case err = <-executor.broken:
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	return errors.Join(err, procs.close())
}

// pid1 is the state of Main.
type pid1 struct {
	procs    *processes
	executor *peer
	updates  *updater
	jobs     sync.WaitGroup

	mu  sync.Mutex // guards job
	job *job       // nil when none runs
}

// dispatch takes frames until the stream ends. It never waits for a job's
// process, so that a signal is always heard.
func (p *pid1) dispatch(r *wire.Reader) error {
	for {
		f, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read from the executor: %w", err)
		}
		if err := p.take(f); err != nil {
			return fmt.Errorf("the executor broke the protocol: %w", err)
		}
	}
}

func (p *pid1) take(f wire.Frame) error {
	switch f.Type {
	case wire.FrameJob:
		return p.begin(f.Payload)
	case wire.FrameStdin:
		if j := p.current(); j != nil {
			return j.input.push(f.Payload)
		}
		return nil // for a job that has just ended
	case wire.FrameSignal:
		var s wire.Signal
		if err := json.Unmarshal(f.Payload, &s); err != nil {
			return fmt.Errorf("decode signal: %w", err)
		}
		if !s.Valid() {
			return fmt.Errorf("unknown signal %.64q", s.Name)
		}
		if j := p.current(); j != nil {
			j.signal(s.Name)
		}
		return nil
	case wire.FrameUpdate:
		return p.updates.take(f.Payload)
	}
	return fmt.Errorf("unexpected frame of type %d", f.Type)
}

func (p *pid1) current() *job {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.job
}

// begin starts a job's goroutine, which ends with the job's exit frame. Main does
// not wait for it: it may hang on an executor that takes nothing.
func (p *pid1) begin(payload []byte) error {
	var spec wire.Job
	if err := json.Unmarshal(payload, &spec); err != nil {
		return fmt.Errorf("decode job: %w", err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.job != nil {
		return errors.New("a job while another one runs")
	}
	j := newJob(spec, p.procs, p.executor)
	p.job = j
	p.jobs.Go(func() {
		exit := j.run()
		exit.JobID = spec.ID
		p.mu.Lock()
		p.job = nil // before the exit frame, upon which the next job may come
		p.mu.Unlock()
		p.executor.writeJSON(wire.FrameExit, exit) // a failure ends Main
	})
	return nil
}
