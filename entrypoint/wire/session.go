package wire

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
)

// A Session is the executor's side of the wire to one sandbox. It runs jobs one
// after another. The sandbox is not trusted: whatever it sends, memory stays
// bounded (one frame at a time, and nothing is read while a handler works), and a
// frame that is not expected breaks the session for good.
type Session struct {
	ready  Ready
	w      *Writer
	closer io.Closer

	frames  chan Frame    // from the reading goroutine, one at a time
	next    chan struct{} // the frame's payload is no longer used
	out     chan Frame    // to the writing goroutine
	signals chan string
	closing chan struct{} // closed by shut
	ended   chan struct{} // closed when the reading goroutine is done

	updates updates

	mu   sync.Mutex // guards what follows
	err  error      // why the session is over
	busy bool       // a job runs
	live bool       // its job frame is on the way, so a signal would follow it
}

// Handlers take what a job sends. They are called one at a time from within
// Run, which reads nothing more until they return: a slow handler slows the
// process down. A nil handler drops what it would get.
type Handlers struct {
	Started func(Started)
	// Stdout and Stderr get the job's output; the bytes are valid during the call.
	Stdout, Stderr func([]byte)
	// Artifact gets the tar stream, never more than Job.Limits.ArtifactBytes. The
	// stream was made in the sandbox: read it as an enemy's. After an error it
	// gets nothing more, and Run returns an *ArtifactError.
	Artifact io.Writer
}

// An ArtifactError says that a job ended in order but Handlers.Artifact failed.
// The Exit beside it is valid and the session can go on.
type ArtifactError struct{ Err error }

func (e *ArtifactError) Error() string { return "store artifacts: " + e.Err.Error() }

// Unwrap returns the writer's error.
func (e *ArtifactError) Unwrap() error { return e.Err }

// ErrClosed says that the session was closed by its owner.
var ErrClosed = errors.New("session is closed")

// Open takes over the two streams of a sandbox and waits for its ready frame.
// The session's two goroutines end when the streams do, so whoever made the
// streams must end them after Close. When Open fails stdin is closed.
func Open(ctx context.Context, stdin io.WriteCloser, stdout io.Reader) (*Session, error) {
	s := &Session{
		w:       NewWriter(stdin),
		closer:  stdin,
		frames:  make(chan Frame),
		next:    make(chan struct{}),
		out:     make(chan Frame),
		signals: make(chan string, 4),
		closing: make(chan struct{}),
		ended:   make(chan struct{}),
	}
	go s.read(NewReader(stdout))
	go s.write()
	if err := s.awaitReady(ctx); err != nil {
		err = fmt.Errorf("wait for the sandbox to be ready: %w", err)
		s.shut(err)
		return nil, err
	}
	return s, nil
}

func (s *Session) awaitReady(ctx context.Context) error {
	f, err := s.receive(ctx)
	if err != nil {
		return err
	}
	defer s.release()
	if f.Type != FrameReady {
		return fmt.Errorf("frame of type %d before ready", f.Type)
	}
	if err := json.Unmarshal(f.Payload, &s.ready); err != nil {
		return fmt.Errorf("decode ready: %w", err)
	}
	if s.ready.Version != ProtocolVersion {
		return fmt.Errorf("sandbox speaks wire version %d, not %d", s.ready.Version, ProtocolVersion)
	}
	return nil
}

// Ready is what PID 1 said of itself.
func (s *Session) Ready() Ready { return s.ready }

// Signal asks PID 1 to signal the running job: "TERM" (KILL follows after the
// job's grace period), "INT" or "KILL". It never blocks, not even when the
// sandbox takes nothing; nil means that the signal is on its way.
func (s *Session) Signal(name string) error {
	if !(Signal{Name: name}).Valid() {
		return fmt.Errorf("signal %q is not one of TERM, INT, KILL", name)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return s.err
	}
	if !s.live {
		return errors.New("no job runs")
	}
	select {
	case s.signals <- name:
		return nil
	default:
		return errors.New("earlier signals have not been taken yet")
	}
}

// Close closes the sandbox's standard input, whereupon PID 1 kills everything
// and ends; a Run in progress returns ErrClosed. It does not wait for that.
func (s *Session) Close() error {
	s.shut(ErrClosed)
	return nil
}

// Ended is closed when the sandbox's output has ended or broken the protocol.
func (s *Session) Ended() <-chan struct{} { return s.ended }

// shut ends the session because of err; only the first call counts.
func (s *Session) shut(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return
	}
	s.err = err
	close(s.closing)
	s.closer.Close() // its error would only say that the sandbox is gone already
}

func (s *Session) failure() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// read hands over frames until the stream or the session ends.
func (s *Session) read(r *Reader) {
	defer close(s.ended)
	for {
		f, err := r.Next()
		if err != nil {
			if errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF // the sandbox is gone, which is no end of a file
			}
			s.shut(fmt.Errorf("read from the sandbox: %w", err))
			return
		}
		select {
		case s.frames <- f:
		case <-s.closing:
			return
		}
		select {
		case <-s.next:
		case <-s.closing:
			return
		}
	}
}

// write sends frames, signals first, until the session ends.
func (s *Session) write() {
	for {
		var err error
		select {
		case name := <-s.signals:
			err = s.w.WriteJSON(FrameSignal, Signal{Name: name})
		case f := <-s.out:
			err = s.w.Write(f.Type, f.Payload)
		case <-s.closing:
			return
		}
		if err != nil {
			s.shut(fmt.Errorf("write to the sandbox: %w", err))
			return
		}
	}
}

// receive returns the next frame; release must follow.
func (s *Session) receive(ctx context.Context) (Frame, error) {
	select {
	case f := <-s.frames:
		return f, nil
	case <-s.closing:
		return Frame{}, s.failure()
	case <-ctx.Done():
		return Frame{}, context.Cause(ctx)
	}
}

func (s *Session) release() {
	select {
	case s.next <- struct{}{}:
	case <-s.closing:
	}
}
