package executor_test

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"sallyport/executor"
	"sallyport/executor/api"
	"sallyport/executor/plan"
	"sallyport/executor/statedir"
)

// nest makes depth directories in dir, one in another, without paths, which have a
// longest length.
func nest(t testing.TB, dir string, depth int) {
	t.Helper()
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	for range depth {
		if err != nil {
			t.Fatal(err)
		}
		var next int
		err = unix.Mkdirat(fd, "d", 0o755)
		if err == nil {
			next, err = unix.Openat(fd, "d", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		}
		unix.Close(fd)
		fd = next
	}
	if err != nil {
		t.Fatal(err)
	}
	unix.Close(fd)
}

// fewFiles bounds the process's descriptors until the test ends. No test may run
// beside it.
func fewFiles(t *testing.T, n uint64) {
	t.Helper()
	var before unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &before); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: n, Max: before.Max}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Setrlimit(unix.RLIMIT_NOFILE, &before) })
}

// deepScript nests 1,500 directories.
const deepScript = `mkdir -p $(printf 'd/%.0s' $(seq 1500)); echo made`

// TestDeepWorkspace has runs nest directories, one deeper than is looked into. The
// executor has far fewer descriptors than there are directories.
//
// probe: C13
// oracle: the result, what is left of the workspace, and the next run
func TestDeepWorkspace(t *testing.T) {
	h := start(t)
	fewFiles(t, 400)
	res := h.post(command(deepScript + "; sleep 60"))
	wantCode(t, res, api.CodeDisk)
	if res.Error.Details["limitDepth"] == nil {
		t.Errorf("error = %+v", res.Error)
	}
	if res := h.post(command(deepScript)); !res.Success || res.Output != "made\n" {
		t.Errorf("a run that was not looked at in between: %+v", res.Error)
	}
	h.wantClean()
	dir := h.workspace("deep")
	nest(t, dir, 1200)
	res = h.post(command("true", `"cwd":"`+dir+`"`))
	wantCode(t, res, api.CodeDisk)
	nest(t, h.workspace("less"), 900)
	if res := h.post(command("sleep 3", `"cwd":"`+filepath.Join(h.root, "less")+`"`)); !res.Success {
		t.Errorf("900 directories, the control: %v", res.Error)
	}
}

// TestBootWithDeepWorkspace boots an executor that has fewer descriptors than an old
// workspace has directories, one in another.
//
// probe: C13, L1
// oracle: the executor that serves, the directory and the log
func TestBootWithDeepWorkspace(t *testing.T) {
	h := start(t)
	h.end()
	workspaces := filepath.Join(h.config.State, "workspaces")
	left := filepath.Join(workspaces, "01arz3ndektsv4rrffq69g5fav")
	if err := os.Mkdir(left, 0o700); err != nil {
		t.Fatal(err)
	}
	nest(t, left, 3000)
	fewFiles(t, 400)
	h.boot()
	defer h.end()
	if res := h.post(command("true")); !res.Success {
		t.Errorf("error = %v", res.Error)
	}
	h.wantClean()
	if strings.Contains(h.log.String(), "could not be removed") {
		t.Errorf("log: %s", h.log)
	}
}

// TestBaselineComesFirst writes at once into a workspace that takes long to look at.
//
// probe: C9
// oracle: the code of the result
func TestBaselineComesFirst(t *testing.T) {
	t.Parallel()
	h := start(t, limit(func(l *plan.Limits) { l.WorkspaceBytes = 1 << 20 }))
	dir := h.workspace("caller")
	many, theirs := h.workspace("caller/many"), h.workspace("caller/theirs")
	for i := range 30000 {
		if err := os.WriteFile(filepath.Join(many, fmt.Sprint(i)), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(theirs, "big"), make([]byte, 3<<20), 0o644); err != nil {
		t.Fatal(err)
	}
	res := h.post(command("head -c 3000000 /dev/urandom > theirs/new; sleep 60", `"cwd":"`+dir+`"`))
	wantCode(t, res, api.CodeDisk)
	if res := h.post(command("sleep 5", `"cwd":"`+dir+`"`)); !res.Success {
		t.Errorf("what the caller brought counts: %v", res.Error)
	}
}

// TestSocketsInWorkspace: what would lead past the gate is refused with its name, before
// an agent runs.
//
// probe: C17
// oracle: the jobs that the sandbox was sent
func TestSocketsInWorkspace(t *testing.T) {
	for _, allowed := range []bool{false, true} {
		h := start(t, func(c *executor.Config) { c.AllowSockets = allowed })
		dir := h.workspace("project")
		if err := os.Mkdir(filepath.Join(dir, "run"), 0o755); err != nil {
			t.Fatal(err)
		}
		body := command(`test ! -S run/daemon.sock || echo reached >&3 3<>pipe; echo ran`, `"cwd":"`+dir+`"`)
		if res := h.post(body); !res.Success {
			t.Fatalf("the control: %v", res.Error)
		}
		daemon, err := net.Listen("unix", filepath.Join(dir, "run", "daemon.sock"))
		if err != nil {
			t.Fatal(err)
		}
		defer daemon.Close()
		if err := unix.Mkfifo(filepath.Join(dir, "pipe"), 0o666); err != nil {
			t.Fatal(err)
		}
		res := h.post(body)
		if allowed {
			if !res.Success {
				t.Errorf("where the operator allows it: %v", res.Error)
			}
			continue
		}
		wantCode(t, res, api.CodeStartFailed)
		if res.Error.Retryable || res.Output != "" || res.Error.Details["field"] != "config.cwd" ||
			!strings.Contains(res.Error.Message, `"run/daemon.sock"`) || !strings.Contains(res.Error.Message, `"pipe"`) {
			t.Errorf("%+v, output %q", res.Error, res.Output)
		}
		if jobs := len(h.backend.jobs); jobs != 1 {
			t.Errorf("%d jobs were sent", jobs)
		}
		h.wantClean()
	}
}

// TestSetIDLeft: a file that would make whoever runs it the agent's user loses that with
// the run, be it that the executor dies before the end.
//
// probe: C18
// oracle: the modes of the files; another user's file keeps its own
func TestSetIDLeft(t *testing.T) {
	h := start(t)
	dir := h.workspace("project")
	uid := h.config.Service.UID
	const plant = `mkdir -p a/b; for f in x a/b/y; do cp /bin/true $f; chown %d $f; chmod 6755 $f; done; echo planted; %s`
	others := filepath.Join(dir, "others")
	if err := errors.Join(os.WriteFile(others, nil, 0o755), os.Chmod(others, 0o755|os.ModeSetuid)); err != nil {
		t.Fatal(err)
	}
	modes := func() (modes string) {
		for _, name := range []string{"x", "a/b/y", "others"} {
			info, err := os.Stat(filepath.Join(dir, name))
			if err != nil {
				t.Fatal(err)
			}
			modes += info.Mode().String() + " "
		}
		return modes
	}
	want := "-rwxr-xr-x -rwxr-xr-x urwxr-xr-x "
	if os.Getuid() == uid {
		want = "-rwxr-xr-x -rwxr-xr-x -rwxr-xr-x " // its own as well
	}
	for _, end := range []string{"true", "exit 3", "kill -9 $$"} {
		id := h.begin(command(fmt.Sprintf(plant, uid, end), `"cwd":"`+dir+`"`))
		h.finish(id)
		if got := modes(); got != want {
			t.Errorf("%s: modes %s, want %s", end, got, want)
		}
		if !slices.ContainsFunc(h.events(id, ""), func(ev api.Event) bool {
			return ev.Type == api.EventWarning && strings.Contains(ev.Text, `"a/b/y"`) && strings.Contains(ev.Text, "set-id")
		}) {
			t.Errorf("%s: the events say nothing of it", end)
		}
	}

	id := h.begin(command(fmt.Sprintf(plant, uid, "sleep 60"), `"cwd":"`+dir+`"`))
	h.awaitText(id, "planted")
	kept := filepath.Join(t.TempDir(), "executions")
	if err := os.CopyFS(kept, os.DirFS(filepath.Join(h.config.State, "executions"))); err != nil {
		t.Fatal(err)
	}
	h.end()
	if err := errors.Join(os.Remove(statedir.Database(h.config.State)), os.RemoveAll(filepath.Join(h.config.State, "executions")), os.Rename(kept, filepath.Join(h.config.State, "executions")),
		os.Chmod(filepath.Join(dir, "x"), 0o755|os.ModeSetuid)); err != nil {
		t.Fatal(err)
	}
	h.boot()
	defer h.end()
	wantCode(t, h.finish(id), api.CodeLost)
	if got := modes(); got != want {
		t.Errorf("after the executor died: modes %s, want %s", got, want)
	}
}
