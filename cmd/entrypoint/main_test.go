package main

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"sallyport/entrypoint/github"
	"sallyport/entrypoint/probe"
)

// roleVariable makes the test binary the program itself.
const roleVariable = "SALLYPORT_TEST_ENTRYPOINT"

func TestMain(m *testing.M) {
	if os.Getenv(roleVariable) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// Main itself takes over its process, so package pid1 tests it in others.

func TestProbe(t *testing.T) {
	var out strings.Builder
	in := strings.NewReader(`{"probes":[{"id":"me","kind":"self"}]}`)
	if err := run(context.Background(), []string{"entrypoint", "probe"}, nil, in, &out); err != nil {
		t.Fatal(err)
	}
	var r probe.Result
	if err := json.Unmarshal([]byte(out.String()), &r); err != nil || r.ID != "me" || r.Self == nil {
		t.Errorf("%q, %v", out.String(), err)
	}
}

func TestCanary(t *testing.T) {
	var out strings.Builder
	if err := run(context.Background(), []string{"entrypoint", "canary"}, nil, strings.NewReader(""), &out); err != nil {
		t.Fatal(err)
	}
	var line probe.CanaryLine
	if err := json.Unmarshal([]byte(out.String()), &line); err != nil || line.Hello == nil || line.Hello.Port == 0 {
		t.Errorf("%q, %v", out.String(), err)
	}
}

func TestUnknownCommand(t *testing.T) {
	for _, args := range [][]string{{"entrypoint", "nosuch"}, {"entrypoint", "probe", "extra"}, {"entrypoint", ""}, {"/run/sallyport/bin/git-credential-sallyport"}} {
		var out strings.Builder
		if err := run(context.Background(), args, nil, strings.NewReader(""), &out); err == nil || out.Len() > 0 {
			t.Errorf("%q: %v, %q", args, err, out.String())
		}
	}
}

// TestShims: called by a shim's name the program is git's helper, which keeps
// quiet about what it has nothing for.
func TestShims(t *testing.T) {
	var out strings.Builder
	args := []string{"/run/sallyport/bin/" + github.CredentialShim, "erase"}
	if err := run(context.Background(), args, nil, strings.NewReader(""), &out); err != nil || out.Len() > 0 {
		t.Errorf("%q, %v", out.String(), err)
	}
	args = []string{github.GhShim, "--version"}
	err := run(context.Background(), args, []string{"PATH=/run/sallyport/bin"}, strings.NewReader(""), &out)
	if err == nil || !strings.Contains(err.Error(), "gh is not in this sandbox's image") {
		t.Errorf("gh without gh: %v", err)
	}
}

// TestCheckoutIsEnded: a checkout that waits for a server and is told to end leaves no
// half of a repository.
func TestCheckoutIsEnded(t *testing.T) {
	asked := make(chan struct{}, 9)
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		asked <- struct{}{}
		<-r.Context().Done()
	}))
	defer func() { server.CloseClientConnections(); server.Close() }() // git may be left
	dir := t.TempDir()
	cmd := exec.Command(os.Args[0], "checkout")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), roleVariable+"=1")
	cmd.Stdin = strings.NewReader(`{"url":"` + server.URL + `/acme/app.git","branch":"main"}`)
	var said bytes.Buffer
	cmd.Stderr = &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	left := func() int {
		t.Helper()
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		return len(entries)
	}
	select {
	case <-asked:
	case <-time.After(30 * time.Second):
		t.Error("git has not asked the server")
	}
	if left() == 0 {
		t.Error("control: nothing was begun")
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-ended:
		if err == nil || cmd.ProcessState.ExitCode() != 1 || left() != 0 {
			t.Errorf("%v, %q, %d files are left", err, said.String(), left())
		}
	case <-time.After(30 * time.Second):
		cmd.Process.Kill()
		t.Error("it does not end")
	}
}
