package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// asGate makes the test binary the gate itself, so that it can be run as the
// process that it is in its container.
const asGate = "SALLYPORT_TEST_AS_GATE"

func TestMain(m *testing.M) {
	if os.Getenv(asGate) != "" {
		main()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// A place is a directory with the settings of a gate.
type place struct {
	dir     string
	environ []string
}

func newPlace(t *testing.T, allowlist string) place {
	t.Helper()
	p := place{dir: t.TempDir()}
	path := filepath.Join(p.dir, "allowlist.yaml")
	if err := os.WriteFile(path, []byte(allowlist), 0o600); err != nil {
		t.Fatal(err)
	}
	p.environ = []string{asGate + "=1", "SALLYPORT_ALLOWLIST=" + path,
		"SALLYPORT_CONTROL_SOCKET=" + filepath.Join(p.dir, "control.sock"), "SALLYPORT_RESOLVERS=192.0.2.1:53"}
	return p
}

// command is the gate with these arguments and an end in time.
func (p place) command(t *testing.T, args ...string) (cmd *exec.Cmd, stdout, stderr *bytes.Buffer) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	t.Cleanup(cancel)
	stdout, stderr = new(bytes.Buffer), new(bytes.Buffer)
	cmd = exec.CommandContext(ctx, os.Args[0], args...)
	cmd.Env, cmd.Stdout, cmd.Stderr = p.environ, stdout, stderr
	return cmd, stdout, stderr
}

const allowlist = "version: 1\npolicies:\n  strict: {allow: [allowed.example]}\n"

// The gate starts, says that it is well, and ends with status 0 when told to.
func TestGate(t *testing.T) {
	p := newPlace(t, allowlist)
	if cmd, _, stderr := p.command(t, "health"); exitCode(cmd.Run()) != 1 || stderr.Len() == 0 {
		t.Errorf("health without a gate: %v, %q", cmd.ProcessState, stderr)
	}
	gate, log, stderr := p.command(t)
	if err := gate.Start(); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		cmd, out, _ := p.command(t, "health")
		if cmd.Run() == nil {
			if s := out.String(); !strings.HasPrefix(s, "ok: 0 cells, policies strict, sha256:") {
				t.Errorf("health %q", s)
			}
			break
		}
		if time.Now().After(end) {
			t.Fatalf("the gate does not come up: %s %s", log, stderr)
		}
	}
	if err := gate.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := gate.Wait(); err != nil {
		t.Errorf("the gate ended with %v: %s", err, stderr)
	}
	if _, err := os.Lstat(filepath.Join(p.dir, "control.sock")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the control socket is left behind: %v", err)
	}
	for line := range strings.Lines(log.String()) {
		if !json.Valid([]byte(line)) {
			t.Errorf("log line %q is not JSON", line)
		}
	}
}

// SIGHUP makes the process read its allowlist again, and so does "gate reload"; a
// bad one ends neither.
func TestGateReload(t *testing.T) {
	p := newPlace(t, allowlist)
	gate, _, stderr := p.command(t)
	if err := gate.Start(); err != nil {
		t.Fatal(err)
	}
	// health waits until "gate health" prints want.
	health := func(want string) {
		t.Helper()
		for end := time.Now().Add(20 * time.Second); ; time.Sleep(20 * time.Millisecond) {
			cmd, out, _ := p.command(t, "health")
			if cmd.Run() == nil && strings.Contains(out.String(), want) {
				return
			}
			if time.Now().After(end) {
				t.Fatalf("health %q, want %q: %s", out, want, stderr)
			}
		}
	}
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(p.dir, "allowlist.yaml"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	hangup := func() {
		t.Helper()
		if err := gate.Process.Signal(syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
	}
	health("policies strict,")
	hangup()
	write("version: 1\npolicies:\n  strict: {alow: [allowed.example]}\n")
	hangup()
	health("allowlist.yaml:3:")
	if cmd, _, stderr := p.command(t, "reload"); exitCode(cmd.Run()) != 1 || !strings.Contains(stderr.String(), "allowlist.yaml:3:") {
		t.Errorf("reload of a bad file: %v, %q", cmd.ProcessState, stderr)
	}
	write(strings.Replace(allowlist, "strict", "second", 1))
	hangup()
	health("policies second,")
	write(strings.Replace(allowlist, "strict", "third", 1))
	if cmd, out, _ := p.command(t, "reload"); cmd.Run() != nil || !strings.Contains(out.String(), "policies third,") {
		t.Errorf("reload: %v, %q", cmd.ProcessState, out)
	}
	if err := gate.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := gate.Wait(); err != nil {
		t.Errorf("the gate ended with %v: %s", err, stderr)
	}
}

// A gate that was killed leaves its socket; the next one takes its place.
func TestGateAfterKill(t *testing.T) {
	p := newPlace(t, allowlist)
	for range 2 {
		gate, _, stderr := p.command(t)
		if err := gate.Start(); err != nil {
			t.Fatal(err)
		}
		for end := time.Now().Add(20 * time.Second); ; time.Sleep(20 * time.Millisecond) {
			if cmd, _, _ := p.command(t, "health"); cmd.Run() == nil {
				break
			}
			if time.Now().After(end) {
				t.Fatalf("the gate does not come up: %s", stderr)
			}
		}
		if err := gate.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = gate.Wait()
	}
}

// A gate with a bad allowlist ends at once, with its file and line.
func TestGateRefusesAllowlist(t *testing.T) {
	for name, test := range map[string]struct{ text, want string }{
		"malformed": {"version: 1\npolicies:\n  strict: {alow: [allowed.example]}\n", "allowlist.yaml:3:"},
		"empty":     {"", "allowlist.yaml: "},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPlace(t, test.text)
			cmd, stdout, stderr := p.command(t)
			if code := exitCode(cmd.Run()); code != 1 || !strings.Contains(stderr.String(), test.want) || stdout.Len() != 0 {
				t.Errorf("exit %d, %q; want 1 and %q", code, stderr, test.want)
			}
			if _, err := os.Lstat(filepath.Join(p.dir, "control.sock")); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("the control socket: %v", err)
			}
		})
	}
}

func TestOtherArguments(t *testing.T) {
	p := newPlace(t, allowlist)
	if cmd, out, _ := p.command(t, "version"); cmd.Run() != nil || strings.TrimSpace(out.String()) == "" {
		t.Errorf("version: %v %q", cmd.ProcessState, out)
	}
	if cmd, _, stderr := p.command(t, "serve"); exitCode(cmd.Run()) != 1 || !strings.Contains(stderr.String(), "usage:") {
		t.Errorf("unknown argument: %v %q", cmd.ProcessState, stderr)
	}
	p.environ = append(p.environ, "SALLYPORT_RESOLVERS=nonsense")
	if cmd, _, stderr := p.command(t); exitCode(cmd.Run()) != 1 || !strings.Contains(stderr.String(), "nonsense") {
		t.Errorf("bad setting: %v %q", cmd.ProcessState, stderr)
	}
}

func exitCode(err error) int {
	var e *exec.ExitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &e):
		return e.ExitCode()
	}
	return -1
}
