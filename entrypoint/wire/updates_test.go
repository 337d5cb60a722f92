package wire

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"
)

// TestLateUpdate: a job that ends before its update has been answered keeps
// nobody waiting, and the answer does not pass for that of a later update.
func TestLateUpdate(t *testing.T) {
	s, p, err := hostile(t, frame(FrameReady, readyFrame))
	if err != nil {
		t.Fatal(err)
	}
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		for updates := 0; updates < 2; {
			switch f := <-p.heard; f.Type {
			case FrameJob:
				io.WriteString(p.out, frame(FrameStarted, `{"jobId":"a"}`))
			case FrameUpdate:
				if updates++; updates == 1 {
					io.WriteString(p.out, frame(FrameExit, `{"jobId":"a"}`))
				} else {
					io.WriteString(p.out, frame(FrameUpdated, `{"error":"first"}`)+frame(FrameUpdated, `{"error":"second"}`)+frame(FrameExit, `{"jobId":"a"}`))
				}
			}
		}
	}()
	for _, want := range []string{"ended before", "second"} {
		updated := make(chan error, 1)
		_, err := s.Run(deadline(t), Job{ID: "a"}, nil, Handlers{Started: func(Started) {
			go func() { updated <- s.Update(deadline(t), File{Path: "/x"}) }()
		}})
		if err != nil {
			t.Fatal(err)
		}
		if err := <-updated; err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("update: %v, want an error with %q", err, want)
		}
	}
	<-answered
}

// TestUpdateEnds: neither a silent sandbox nor a closed session keeps an update.
func TestUpdateEnds(t *testing.T) {
	s, _, err := hostile(t, frame(FrameReady, readyFrame)+frame(FrameStarted, `{"jobId":"a"}`))
	if err != nil {
		t.Fatal(err)
	}
	started, ran := make(chan struct{}), make(chan error, 1)
	go func() {
		_, err := s.Run(deadline(t), Job{ID: "a"}, nil, Handlers{Started: func(Started) { close(started) }})
		ran <- err
	}()
	<-started
	ctx, cancel := context.WithTimeout(deadline(t), 10*time.Millisecond)
	defer cancel()
	if err := s.Update(ctx, File{Path: "/x"}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("an update that nobody answers: %v", err)
	}
	updated := make(chan error, 1)
	go func() { updated <- s.Update(deadline(t), File{Path: "/x"}) }()
	s.Close()
	if err := <-updated; !errors.Is(err, ErrClosed) {
		t.Errorf("an update of a closed session: %v", err)
	}
	if err := <-ran; !errors.Is(err, ErrClosed) {
		t.Errorf("Run: %v", err)
	}
}
