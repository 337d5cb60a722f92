package entrypoint

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"
)

// TestUpdate: files change under a process that runs, in order and in one step.
func TestUpdate(t *testing.T) {
	s := session(t)
	dir := workspace(t)
	if err := s.Update(deadline(t), File{Path: dir + "/token"}); err == nil {
		t.Error("updated without a job")
	}
	job := shell(dir, `echo up; while [ "$(cat token)" != last ]; do cat token; sleep 0.01; done; stat -c %a token; cat other`)
	job.Files = []File{{Path: dir + "/token", Content: []byte("first")}}
	up := make(chan struct{})
	updated := make(chan error, 1)
	go func() {
		<-up
		var errs []error
		for i := range 3 * maxUpdates {
			errs = append(errs, s.Update(deadline(t), File{Path: dir + "/token", Content: fmt.Append(nil, "token ", i)}))
		}
		if err := s.Update(deadline(t), File{Path: dir + "/token/x"}, File{Path: dir + "/never"}); err == nil || !strings.Contains(err.Error(), "no directory") {
			errs = append(errs, fmt.Errorf("an impossible update: %v", err))
		}
		if err := s.Update(deadline(t), File{Path: dir + "/large", Content: make([]byte, updateSize)}); err == nil {
			errs = append(errs, errors.New("an update over the limit was sent"))
		}
		errs = append(errs, s.Update(deadline(t), File{Path: dir + "/other", Content: []byte("two\n")}, File{Path: dir + "/token", Mode: 0o640, Content: []byte("last")}))
		updated <- errors.Join(errs...)
	}()
	var out strings.Builder
	exit, err := s.Run(deadline(t), job, nil, Handlers{Stdout: func(b []byte) {
		if out.Len() == 0 {
			close(up)
		}
		out.Write(b)
	}})
	if err := errors.Join(err, <-updated); err != nil || exit.Code != 0 {
		t.Fatalf("%+v, %v", exit, err)
	}
	if !strings.HasSuffix(out.String(), "640\ntwo\n") {
		t.Errorf("at the end the process saw %q", out.String())
	}
	if _, err := os.Stat(dir + "/never"); err == nil {
		t.Error("what follows an impossible file was written")
	}
	if err := s.Update(deadline(t), File{Path: dir + "/token"}); err == nil {
		t.Error("updated after the job")
	}
	if got := do(t, s, shell(dir, "echo on"), ""); got.out != "on\n" {
		t.Errorf("the job after it: %+v", got)
	}
}

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

// TestShims: a shim is this program under another name, and replaces what an
// earlier job has put in its place.
func TestShims(t *testing.T) {
	s := session(t)
	dir := workspace(t)
	job := shell(dir, `readlink `+ShimDir+`/one `+ShimDir+`/two; ls -A `+ShimDir+`; rm `+ShimDir+`/one; echo mine >`+ShimDir+`/one`)
	job.Shims = []string{"one", "two"}
	got := do(t, s, job, "")
	lines := strings.Fields(got.out)
	if len(lines) != 4 || lines[0] == "" || lines[0] != lines[1] || !strings.HasPrefix(lines[0], "/") || lines[2] != "one" || lines[3] != "two" {
		t.Errorf("%q, %+v", got.out, got.Exit)
	}
	if again := do(t, s, job, ""); again.out != got.out {
		t.Errorf("after a job that has put a file there: %q, want %q", again.out, got.out)
	}
	for _, name := range []string{"", "..", "a/b", "/x"} {
		job := shell(dir, "true")
		job.Shims = []string{name}
		if got := do(t, s, job, ""); !strings.Contains(got.Error, "file name") {
			t.Errorf("shim %q: %+v", name, got.Exit)
		}
	}
}
