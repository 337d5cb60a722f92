package wire

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

const readyFrame = `{"version":1,"pid":1,"uid":10001}`

// A peer plays the sandbox: it says what it is told to and keeps what it hears.
type peer struct {
	out   *io.PipeWriter
	heard chan Frame
}

// hostile opens a session with a peer that begins with said.
func hostile(t *testing.T, said string) (*Session, *peer, error) {
	t.Helper()
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	p := &peer{out: outW, heard: make(chan Frame, 1000)}
	heard := make(chan struct{})
	go func() {
		defer close(heard)
		for r := NewReader(inR); ; {
			f, err := r.Next()
			if err != nil {
				inR.CloseWithError(err)
				return
			}
			p.heard <- Frame{f.Type, bytes.Clone(f.Payload)}
		}
	}()
	spoken := make(chan struct{})
	go func() {
		defer close(spoken)
		io.WriteString(outW, said)
	}()
	t.Cleanup(func() {
		outW.Close()
		outR.Close()
		inW.Close()
		<-heard
		<-spoken
	})
	s, err := Open(deadline(t), inW, outR)
	if s != nil {
		t.Cleanup(func() { s.Close() })
	}
	return s, p, err
}

// deadline is a generous bound for anything that should take no time.
func deadline(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func TestOpenRefuses(t *testing.T) {
	for _, said := range []string{
		frame(FrameStarted, `{}`),
		frame(FrameReady, `{"version":2}`),
		frame(FrameReady, `{}`),
		frame(FrameReady, `nonsense`),
		"HTTP/1.1 200 OK\r\n\r\n",
		"\x01\xff\xff\xff\xff",
	} {
		if _, _, err := hostile(t, said); err == nil {
			t.Errorf("opened upon %q", said)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		outR, outW := io.Pipe()
		inR, inW := io.Pipe()
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if _, err := Open(ctx, inW, outR); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a peer that says nothing: %v", err)
		}
		if _, err := inR.Read(make([]byte, 1)); err != io.EOF {
			t.Errorf("its input is not closed: %v", err)
		}
		outW.Close()
	})
}

// artifactJob declares artifacts, of at most ten bytes.
var artifactJob = Job{ID: "a", Argv: []string{"x"}, Artifacts: []string{"*"}, Limits: Limits{ArtifactBytes: 10, ArtifactFiles: 1}}

func TestSessionHoldsTheOrder(t *testing.T) {
	started := frame(FrameStarted, `{"jobId":"a","pid":7}`)
	exit := frame(FrameExit, `{"jobId":"a","code":0}`)
	end := frame(FrameArtifact, "")
	plain := Job{ID: "a", Argv: []string{"x"}}
	tests := []struct {
		name string
		job  Job
		said string
		want string // a part of the error, "" if the job is in order
	}{
		{"in order", plain, started + frame(FrameStdout, "o") + frame(FrameStderr, "e") + exit, ""},
		{"not started", plain, exit, ""},
		{"with artifacts", artifactJob, started + frame(FrameArtifact, "0123456789") + end + exit, ""},
		{"artifacts left out", artifactJob, started + exit, ""},
		{"output first", plain, frame(FrameStdout, "o"), "does not run"},
		{"started twice", plain, started + started, "unexpected started"},
		{"started for another", plain, frame(FrameStarted, `{"jobId":"b"}`), "unexpected started"},
		{"exit for another", plain, started + frame(FrameExit, `{"jobId":"b"}`), "exit of job"},
		{"ready again", plain, started + frame(FrameReady, readyFrame), "unexpected frame of type 1"},
		{"job", plain, started + frame(FrameJob, "{}"), "unexpected frame of type 2"},
		{"stdin", plain, started + frame(FrameStdin, "x"), "unexpected frame of type 3"},
		{"signal", plain, started + frame(FrameSignal, "{}"), "unexpected frame of type 6"},
		{"update", plain, started + frame(FrameUpdate, "{}"), "unexpected frame of type 11"},
		{"updated", plain, started + frame(FrameUpdated, "{}"), "an update that was not sent"},
		{"unknown", plain, started + frame(99, "x"), "unknown frame type 99"},
		{"artifacts not asked for", plain, started + frame(FrameArtifact, "x"), "not asked for"},
		{"artifacts before start", artifactJob, frame(FrameArtifact, "x"), "not asked for"},
		{"too many artifacts", artifactJob, started + frame(FrameArtifact, "01234567890"), "more than 10 bytes"},
		{"too many in parts", artifactJob, started + frame(FrameArtifact, "01234") + frame(FrameArtifact, "012345"), "more than 10 bytes"},
		{"output after artifacts", artifactJob, started + frame(FrameArtifact, "x") + frame(FrameStdout, "o"), "does not run"},
		{"exit inside artifacts", artifactJob, started + frame(FrameArtifact, "x") + exit, "inside the artifact stream"},
		{"artifacts after their end", artifactJob, started + end + frame(FrameArtifact, "x"), "not asked for"},
		{"window before start", plain, frame(FrameWindow, "\x00\x00\x00\x01"), "unexpected window"},
		{"short window", plain, started + frame(FrameWindow, "\x01"), "unexpected window"},
		{"window for nothing", plain, started + frame(FrameWindow, "\x00\x00\x00\x01"), "window of 1 bytes, 0 are under way"},
		{"largest window", plain, started + frame(FrameWindow, "\xff\xff\xff\xff"), "window of 4294967295 bytes"},
		{"exit malformed", plain, started + frame(FrameExit, "x"), "decode exit"},
		{"started malformed", plain, frame(FrameStarted, "x"), "decode started"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s, _, err := hostile(t, frame(FrameReady, readyFrame)+tt.said)
			if err != nil {
				t.Fatal(err)
			}
			_, err = s.Run(deadline(t), tt.job, nil, Handlers{})
			if tt.want == "" {
				if err != nil {
					t.Errorf("Run: %v", err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("Run: %v, want an error with %q", err, tt.want)
			}
			if _, err := s.Run(deadline(t), tt.job, nil, Handlers{}); err == nil {
				t.Error("the session takes another job")
			}
		})
	}
}

// TestLateInput: input that nobody has taken yet when a job ends must not reach
// the next one.
func TestLateInput(t *testing.T) {
	s, p, err := hostile(t, frame(FrameReady, readyFrame))
	if err != nil {
		t.Fatal(err)
	}
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		for jobs := 0; jobs < 2; {
			switch f := <-p.heard; {
			case f.Type == FrameJob:
				jobs++
				io.WriteString(p.out, frame(FrameStarted, `{"jobId":"a"}`)+frame(FrameExit, `{"jobId":"a"}`))
			case f.Type == FrameStdin && string(f.Payload) == "late":
				t.Error("input arrives after its job")
			}
		}
	}()
	late, lateW := io.Pipe()
	if _, err := s.Run(deadline(t), Job{ID: "a"}, late, Handlers{}); err != nil {
		t.Fatal(err)
	}
	if _, err := lateW.Write([]byte("late")); err == nil {
		t.Error("the input is still read after its job")
	}
	if _, err := s.Run(deadline(t), Job{ID: "a"}, strings.NewReader("mine"), Handlers{}); err != nil {
		t.Fatal(err)
	}
	<-answered
	s.Close()
	for len(p.heard) > 0 {
		if f := <-p.heard; f.Type == FrameStdin && string(f.Payload) != "mine" && len(f.Payload) > 0 {
			t.Errorf("the second job gets %q", f.Payload)
		}
	}
}

// TestWindow: no more than the window is under way until the peer grants more.
func TestWindow(t *testing.T) {
	s, p, err := hostile(t, frame(FrameReady, readyFrame)+frame(FrameStarted, `{"jobId":"a"}`))
	if err != nil {
		t.Fatal(err)
	}
	const size = 3*StdinWindow + 5
	done := make(chan error)
	ctx := deadline(t)
	go func() {
		_, err := s.Run(ctx, Job{ID: "a"}, strings.NewReader(strings.Repeat("x", size)), Handlers{})
		done <- err
	}()
	got, open := 0, StdinWindow
	for got < size {
		f := <-p.heard
		if f.Type != FrameStdin {
			continue
		}
		got += len(f.Payload)
		if got > open {
			t.Fatalf("%d bytes sent, %d granted", got, open)
		}
		if got == open {
			open += 1000 + len(f.Payload)
			io.WriteString(p.out, frame(FrameWindow, string(WindowPayload(1000)))+
				frame(FrameWindow, string(WindowPayload(len(f.Payload)))))
		}
	}
	io.WriteString(p.out, frame(FrameExit, `{"jobId":"a"}`))
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// TestStuckPeer: a peer that reads nothing keeps neither Signal nor a Run whose
// context ends waiting.
func TestStuckPeer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, inW := io.Pipe() // never read
		outR, outW := io.Pipe()
		go io.WriteString(outW, frame(FrameReady, readyFrame))
		s, err := Open(context.Background(), inW, outR)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
		defer cancel()
		ended := make(chan error, 1)
		go func() {
			_, err := s.Run(ctx, Job{ID: "a"}, strings.NewReader("input"), Handlers{})
			ended <- err
		}()
		synctest.Wait()
		refused := false
		for range 10 {
			refused = refused || s.Signal("KILL") != nil
		}
		if !refused {
			t.Error("signals that nobody takes are all accepted")
		}
		if err := <-ended; !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Run: %v", err)
		}
		outW.Close()
		<-s.Ended()
	})
}

func TestArtifactError(t *testing.T) {
	s, _, err := hostile(t, frame(FrameReady, readyFrame)+
		frame(FrameStarted, `{"jobId":"a"}`)+frame(FrameArtifact, "1")+frame(FrameArtifact, "2")+frame(FrameArtifact, "")+
		frame(FrameExit, `{"jobId":"a","code":3}`)+frame(FrameExit, `{"jobId":"a","code":4}`))
	if err != nil {
		t.Fatal(err)
	}
	full := errors.New("disk full")
	w := &failingWriter{err: full}
	exit, err := s.Run(deadline(t), artifactJob, nil, Handlers{Artifact: w})
	var artifact *ArtifactError
	if !errors.As(err, &artifact) || !errors.Is(err, full) || exit.Code != 3 || w.calls != 1 {
		t.Errorf("%+v, %v, %d writes", exit, err, w.calls)
	}
	if exit, err := s.Run(deadline(t), artifactJob, nil, Handlers{}); err != nil || exit.Code != 4 {
		t.Errorf("the next job: %+v, %v", exit, err)
	}
}

type failingWriter struct {
	err   error
	calls int
}

func (w *failingWriter) Write([]byte) (int, error) {
	w.calls++
	return 0, w.err
}

// FuzzSession feeds a session with whatever a hostile sandbox could say. It must
// end, hold what the job's limits say, and never hand out output that is out of
// order.
func FuzzSession(f *testing.F) {
	ready, started := frame(FrameReady, readyFrame), frame(FrameStarted, `{"jobId":"a","pid":7}`)
	exit := frame(FrameExit, `{"jobId":"a","code":0}`)
	f.Add([]byte(ready + started + frame(FrameStdout, "out") + frame(FrameWindow, "\x00\x00\x00\x02") + exit))
	f.Add([]byte(ready + started + frame(FrameArtifact, "tar") + frame(FrameArtifact, "") + exit))
	f.Fuzz(func(t *testing.T, said []byte) {
		inR, inW := io.Pipe()
		go io.Copy(io.Discard, inR)
		defer inR.Close()
		s, err := Open(t.Context(), inW, bytes.NewReader(said))
		if err != nil {
			return
		}
		defer s.Close()
		for range 3 {
			running, artifacts := false, 0
			h := Handlers{
				Started: func(Started) { running = true },
				Stdout: func(b []byte) {
					if !running || artifacts > 0 || len(b) > ChunkSize {
						t.Error("output of a process that does not run")
					}
				},
				Artifact: writerFunc(func(b []byte) (int, error) {
					artifacts += len(b)
					return len(b), nil
				}),
			}
			exit, err := s.Run(t.Context(), artifactJob, strings.NewReader("input"), h)
			if artifacts > int(artifactJob.Limits.ArtifactBytes) {
				t.Errorf("%d bytes of artifacts", artifacts)
			}
			if err != nil {
				break
			}
			if exit.JobID != artifactJob.ID {
				t.Errorf("exit of %q", exit.JobID)
			}
		}
	})
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }
