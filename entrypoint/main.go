package entrypoint

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
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
	p := &pid1{procs: procs, out: NewWriter(stdout), broken: make(chan error, 1), updates: make(chan Update, maxUpdates)}
	ready := Ready{Version: ProtocolVersion, PID: os.Getpid(), UID: os.Getuid()}
	if err := p.out.WriteJSON(FrameReady, ready); err != nil {
		return fmt.Errorf("say ready: %w", err)
	}
	uctx, stop := context.WithCancel(ctx)
	defer stop()
	go p.runUpdates(uctx)
	ended := make(chan error, 1)
	go func() { ended <- p.dispatch(NewReader(stdin)) }()
	select {
	case err = <-ended:
	case err = <-p.broken:
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	return errors.Join(err, procs.close())
}

// pid1 is the state of Main.
type pid1 struct {
	procs  *processes
	out    *Writer
	broken chan error // why Main must end
	// updates are those that runUpdates has not taken yet.
	updates chan Update
	jobs    sync.WaitGroup

	mu  sync.Mutex // guards job
	job *job       // nil when none runs
}

// write sends a frame; a failure ends Main.
func (p *pid1) write(t FrameType, payload []byte) error {
	err := p.out.Write(t, payload)
	if err != nil {
		p.fail(fmt.Errorf("write to the executor: %w", err))
	}
	return err
}

// fail ends Main because of err.
func (p *pid1) fail(err error) {
	select {
	case p.broken <- err:
	default:
	}
}

func (p *pid1) writeJSON(t FrameType, v any) error {
	payload, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode frame of type %d: %w", t, err)
	}
	return p.write(t, payload)
}

// Write makes pid1 the writer of the artifact stream.
func (p *pid1) Write(b []byte) (int, error) {
	n := 0
	for n < len(b) {
		c := min(len(b)-n, chunkSize)
		if err := p.write(FrameArtifact, b[n:n+c]); err != nil {
			return n, err
		}
		n += c
	}
	return n, nil
}

// dispatch takes frames until the stream ends. It never waits for a job's
// process, so that a signal is always heard.
func (p *pid1) dispatch(r *Reader) error {
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

func (p *pid1) take(f Frame) error {
	switch f.Type {
	case FrameJob:
		return p.begin(f.Payload)
	case FrameStdin:
		if j := p.current(); j != nil {
			return j.input.push(f.Payload)
		}
		return nil // for a job that has just ended
	case FrameSignal:
		var s Signal
		if err := json.Unmarshal(f.Payload, &s); err != nil {
			return fmt.Errorf("decode signal: %w", err)
		}
		if !validSignal(s.Name) {
			return fmt.Errorf("unknown signal %.64q", s.Name)
		}
		if j := p.current(); j != nil {
			j.signal(s.Name)
		}
		return nil
	case FrameUpdate:
		return p.queueUpdate(f.Payload)
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
	var spec Job
	if err := json.Unmarshal(payload, &spec); err != nil {
		return fmt.Errorf("decode job: %w", err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.job != nil {
		return errors.New("a job while another one runs")
	}
	j := newJob(p, spec)
	p.job = j
	p.jobs.Go(func() {
		exit := j.run()
		exit.JobID = spec.ID
		p.mu.Lock()
		p.job = nil // before the exit frame, upon which the next job may come
		p.mu.Unlock()
		p.writeJSON(FrameExit, exit) // a failure ends Main
	})
	return nil
}
