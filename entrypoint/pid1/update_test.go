package pid1

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"sallyport/entrypoint/wire"
)

// TestUpdate: files change under a process that runs, in order and in one step.
func TestUpdate(t *testing.T) {
	s := session(t)
	dir := workspace(t)
	if err := s.Update(deadline(t), wire.File{Path: dir + "/token"}); err == nil {
		t.Error("updated without a job")
	}
	job := shell(dir, `echo up; while [ "$(cat token)" != last ]; do cat token; sleep 0.01; done; stat -c %a token; cat other`)
	job.Files = []wire.File{{Path: dir + "/token", Content: []byte("first")}}
	up := make(chan struct{})
	updated := make(chan error, 1)
	go func() {
		<-up
		var errs []error
		for i := range 3 * maxUpdates {
			errs = append(errs, s.Update(deadline(t), wire.File{Path: dir + "/token", Content: fmt.Append(nil, "token ", i)}))
		}
		if err := s.Update(deadline(t), wire.File{Path: dir + "/token/x"}, wire.File{Path: dir + "/never"}); err == nil || !strings.Contains(err.Error(), "no directory") {
			errs = append(errs, fmt.Errorf("an impossible update: %v", err))
		}
		if err := s.Update(deadline(t), wire.File{Path: dir + "/large", Content: make([]byte, 256<<10)}); err == nil {
			errs = append(errs, errors.New("an update over the limit was sent"))
		}
		errs = append(errs, s.Update(deadline(t), wire.File{Path: dir + "/other", Content: []byte("two\n")}, wire.File{Path: dir + "/token", Mode: 0o640, Content: []byte("last")}))
		updated <- errors.Join(errs...)
	}()
	var out strings.Builder
	exit, err := s.Run(deadline(t), job, nil, wire.Handlers{Stdout: func(b []byte) {
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
	if err := s.Update(deadline(t), wire.File{Path: dir + "/token"}); err == nil {
		t.Error("updated after the job")
	}
	if got := do(t, s, shell(dir, "echo on"), ""); got.out != "on\n" {
		t.Errorf("the job after it: %+v", got)
	}
}

// TestShims: a shim is this program under another name, and replaces what an
// earlier job has put in its place.
func TestShims(t *testing.T) {
	s := session(t)
	dir := workspace(t)
	job := shell(dir, `readlink `+wire.ShimDir+`/one `+wire.ShimDir+`/two; ls -A `+wire.ShimDir+`; rm `+wire.ShimDir+`/one; echo mine >`+wire.ShimDir+`/one`)
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
