package wire

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// Run runs one job and returns how it ended. Standard input is read in a
// goroutine of its own, no faster than the process takes it; nil means empty. If
// stdin is an io.Closer, Run closes it once the job is over.
//
// A job that cannot be sent, because it is too large for the wire or another one
// runs, is an error that changes nothing. Any later error but an *ArtifactError
// ends the session: the sandbox is gone, broke the protocol, or ctx ended, in
// which case PID 1 kills everything. To stop a job in order use Signal and let Run
// return.
func (s *Session) Run(ctx context.Context, job Job, stdin io.Reader, h Handlers) (Exit, error) {
	payload, err := json.Marshal(job)
	if err != nil {
		return Exit{}, fmt.Errorf("encode job: %w", err)
	}
	if len(payload) > MaxPayload {
		return Exit{}, fmt.Errorf("job has %d bytes on the wire, more than %d", len(payload), MaxPayload)
	}
	if err := s.begin(); err != nil {
		return Exit{}, err
	}
	exit, err := s.run(ctx, job, payload, stdin, h)
	s.finish()
	var artifact *ArtifactError
	if err != nil && !errors.As(err, &artifact) {
		err = fmt.Errorf("run job %s: %w", job.ID, err)
		s.shut(err)
	}
	return exit, err
}

func (s *Session) begin() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.err != nil:
		return s.err
	case s.busy:
		return errors.New("a job already runs in this sandbox")
	}
	s.busy = true
	return nil
}

func (s *Session) finish() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.busy, s.live = false, false
	s.updates.abandon(errJobOver)
	for { // a signal that was not sent yet must not hit the next job
		select {
		case <-s.signals:
		default:
			return
		}
	}
}

func (s *Session) run(ctx context.Context, job Job, payload []byte, stdin io.Reader, h Handlers) (Exit, error) {
	select {
	case s.out <- Frame{FrameJob, payload}:
	case <-s.closing:
		return Exit{}, s.failure()
	case <-ctx.Done():
		return Exit{}, context.Cause(ctx)
	}
	s.mu.Lock()
	s.live = true
	s.mu.Unlock()

	p := &pump{over: make(chan struct{}), credit: StdinWindow, more: make(chan struct{}, 1)}
	go p.run(stdin, s.out)
	defer func() {
		p.stop()
		if c, ok := stdin.(io.Closer); ok {
			c.Close()
		}
	}()

	v := &view{job: job, h: h, pump: p, updates: &s.updates}
	for !v.done {
		f, err := s.receive(ctx)
		if err != nil {
			return Exit{}, err
		}
		err = v.take(f)
		s.release()
		if err != nil {
			return Exit{}, err
		}
	}
	if v.artifactErr != nil {
		return v.exit, &ArtifactError{v.artifactErr}
	}
	return v.exit, nil
}

var errJobOver = errors.New("the job ended before the update was done")

// Update has files written in the sandbox while its job runs, each in one step,
// and waits until they are. It may be called from any goroutine but the one that a
// handler of Run is called in. An error leaves the session and the job as they
// are; whether a file was written is then unknown.
func (s *Session) Update(ctx context.Context, files ...File) error {
	payload, err := json.Marshal(Update{Files: files})
	if err != nil {
		return fmt.Errorf("encode update: %w", err)
	}
	if len(payload) > updateSize {
		return fmt.Errorf("update has %d bytes on the wire, more than %d", len(payload), updateSize)
	}
	if err := s.update(ctx, payload); err != nil {
		return fmt.Errorf("update the sandbox: %w", err)
	}
	return nil
}

func (s *Session) update(ctx context.Context, payload []byte) error {
	s.updates.sending.Lock()
	u, err := s.expectUpdate()
	if err == nil {
		select {
		case s.out <- Frame{FrameUpdate, payload}:
		case <-s.closing:
			err = s.failure()
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
		if err != nil {
			s.updates.withdraw(u)
		}
	}
	s.updates.sending.Unlock()
	if err != nil {
		return err
	}
	select {
	case err := <-u.done:
		return err
	case <-s.closing:
		return s.failure()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// expectUpdate registers an update of the running job.
func (s *Session) expectUpdate() (*pendingUpdate, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.err != nil:
		return nil, s.err
	case !s.live:
		return nil, errors.New("no job runs")
	}
	return s.updates.expect(), nil
}

// A view is the executor's picture of one job: which frames may come next.
type view struct {
	job  Job
	h    Handlers
	pump *pump
	// updates outlive the job: the answer to one may come during the next.
	updates *updates

	started   bool
	artifacts int64 // bytes of the tar stream so far
	tar       bool  // the tar stream has begun, so output is over
	tarEnded  bool
	done      bool

	artifactErr error
	exit        Exit
}

// take handles one frame; an error means that the sandbox broke the protocol.
func (v *view) take(f Frame) error {
	switch f.Type {
	case FrameStarted:
		return v.takeStarted(f.Payload)
	case FrameStdout, FrameStderr:
		return v.takeOutput(f)
	case FrameWindow:
		if !v.started || len(f.Payload) != 4 {
			return errors.New("unexpected window frame")
		}
		return v.pump.grant(binary.BigEndian.Uint32(f.Payload))
	case FrameArtifact:
		return v.takeArtifact(f.Payload)
	case FrameExit:
		return v.takeExit(f.Payload)
	case FrameUpdated:
		return v.updates.take(f.Payload)
	}
	return fmt.Errorf("unexpected frame of type %d during a job", f.Type)
}

func (v *view) takeStarted(payload []byte) error {
	var st Started
	if err := json.Unmarshal(payload, &st); err != nil {
		return fmt.Errorf("decode started: %w", err)
	}
	if v.started || st.JobID != v.job.ID {
		return fmt.Errorf("unexpected started frame for job %.64q", st.JobID)
	}
	v.started = true
	if v.h.Started != nil {
		v.h.Started(st)
	}
	return nil
}

func (v *view) takeOutput(f Frame) error {
	if !v.started || v.tar {
		return errors.New("output of a process that does not run")
	}
	handle := v.h.Stdout
	if f.Type == FrameStderr {
		handle = v.h.Stderr
	}
	if handle != nil && len(f.Payload) > 0 {
		handle(f.Payload)
	}
	return nil
}

func (v *view) takeArtifact(payload []byte) error {
	if !v.started || v.tarEnded || len(v.job.Artifacts) == 0 {
		return errors.New("artifacts that were not asked for")
	}
	v.tar = true
	if len(payload) == 0 {
		v.tarEnded = true
		return nil
	}
	v.artifacts += int64(len(payload))
	if v.artifacts > v.job.Limits.ArtifactBytes {
		return fmt.Errorf("artifacts of more than %d bytes", v.job.Limits.ArtifactBytes)
	}
	if v.h.Artifact != nil && v.artifactErr == nil {
		_, v.artifactErr = v.h.Artifact.Write(payload)
	}
	return nil
}

func (v *view) takeExit(payload []byte) error {
	if err := json.Unmarshal(payload, &v.exit); err != nil {
		return fmt.Errorf("decode exit: %w", err)
	}
	if v.exit.JobID != v.job.ID {
		return fmt.Errorf("exit of job %.64q", v.exit.JobID)
	}
	if v.tar && !v.tarEnded {
		return errors.New("exit inside the artifact stream")
	}
	v.done = true
	return nil
}
