package executor_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"sallyport/executor"
	"sallyport/executor/api"
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
	h := start(t, func(c *executor.Config) { c.Limits.WorkspaceBytes = 1 << 20 })
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
