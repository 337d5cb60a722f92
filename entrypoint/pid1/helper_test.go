package pid1

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"sallyport/entrypoint/wire"
	"sallyport/internal/output"
)

// The test binary is also the sandbox: by this variable it runs Main instead of
// the tests.
const stageVar = "SALLYPORT_TEST_STAGE"

const (
	stageInit  = "init"  // first process of its namespaces, still with privileges
	stageMain  = "main"  // the same, as the agent's user
	stageChild = "child" // not PID 1
	stageQueue = "queue" // sends PID 1 the signals of a fault
)

// agentID is the user of a sandbox where the tests run as root.
const agentID = 10001

func TestMain(m *testing.M) {
	stage := os.Getenv(stageVar)
	os.Unsetenv(stageVar)
	switch stage {
	case "":
		os.Exit(m.Run())
	case stageInit:
		fatal(becomeAgent())
	case stageQueue:
		queueFaults()
	default:
		fatal(Main(context.Background(), os.Stdin, os.Stdout))
	}
}

func fatal(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "sandbox:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// becomeAgent gives the namespace its own /proc and /run and goes on as PID 1 and
// as a user without privileges.
func becomeAgent() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	if err := unix.Mount("proc", "/proc", "proc", 0, ""); err != nil {
		return fmt.Errorf("mount /proc: %w", err)
	}
	if err := unix.Mount("tmpfs", "/run", "tmpfs", 0, "mode=1777"); err != nil {
		return fmt.Errorf("mount /run: %w", err)
	}
	runtime.LockOSThread()
	if os.Getuid() == 0 && os.Getenv("SALLYPORT_TEST_MAPPED") == "" {
		for _, call := range [][2]uintptr{{unix.SYS_SETGROUPS, 0}, {unix.SYS_SETGID, agentID}, {unix.SYS_SETUID, agentID}} {
			if _, _, e := unix.RawSyscall(call[0], call[1], 0, 0); e != 0 {
				return fmt.Errorf("become the agent: %w", e)
			}
		}
	}
	return unix.Exec("/proc/self/exe", os.Args, []string{stageVar + "=" + stageMain, "SECRET_OF_PID1=x"})
}

// queueFaults sends PID 1 each signal with the code of sigqueue(3).
func queueFaults() {
	const byQueue = -1 // SI_QUEUE
	for sig := 1; sig <= 64; sig++ {
		info := [32]int32{int32(sig), 0, byQueue}
		unix.RawSyscall(unix.SYS_RT_SIGQUEUEINFO, 1, uintptr(sig), uintptr(unsafe.Pointer(&info)))
	}
}

// copySelf puts the test binary where the agent's user can run it.
func copySelf(t *testing.T, dir string) string {
	t.Helper()
	b, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(dir, "self")
	if err := os.WriteFile(name, b, 0o755); err != nil {
		t.Fatal(err)
	}
	return name
}

// A sandbox is a running entrypoint, by its streams.
type sandbox struct {
	in     io.WriteCloser
	out    io.ReadCloser
	stderr *output.Buffer
	ended  chan struct{} // the process has ended
	cmd    *exec.Cmd
}

// startSandbox starts an entrypoint that is PID 1 of namespaces of its own and,
// where the tests run as root, has the agent's user.
func startSandbox(t *testing.T, extra ...*os.File) *sandbox {
	t.Helper()
	attr := &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNS}
	env := []string{stageVar + "=" + stageInit}
	if os.Getuid() != 0 {
		attr.Cloneflags |= syscall.CLONE_NEWUSER
		attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}
		attr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}
		env = append(env, "SALLYPORT_TEST_MAPPED=1")
	}
	return launch(t, attr, env, extra)
}

// startChild starts an entrypoint that is not PID 1.
func startChild(t *testing.T) *sandbox {
	t.Helper()
	return launch(t, nil, []string{stageVar + "=" + stageChild}, nil)
}

func launch(t *testing.T, attr *syscall.SysProcAttr, env []string, extra []*os.File) *sandbox {
	t.Helper()
	// Plain pipes: exec's own would be closed by Wait.
	inR, inW, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	outR, outW, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	s := &sandbox{in: inW, out: outR, stderr: &output.Buffer{}, ended: make(chan struct{})}
	s.cmd = exec.Command("/proc/self/exe")
	s.cmd.Env, s.cmd.SysProcAttr, s.cmd.ExtraFiles = env, attr, extra
	s.cmd.Stdin, s.cmd.Stdout, s.cmd.Stderr = inR, outW, s.stderr
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	inR.Close()
	outW.Close()
	go func() {
		s.cmd.Wait()
		close(s.ended)
	}()
	t.Cleanup(func() {
		inW.Close()
		s.awaitEnd(t)
		outR.Close()
		if text := s.stderr.String(); text != "" && t.Failed() {
			t.Logf("the sandbox said: %s", text)
		}
	})
	return s
}

// awaitEnd fails the test when the sandbox does not end by itself.
func (s *sandbox) awaitEnd(t *testing.T) {
	t.Helper()
	select {
	case <-s.ended:
	case <-time.After(20 * time.Second):
		t.Error("the sandbox does not end")
		s.cmd.Process.Kill()
	}
}

// session opens a session with a new sandbox.
func session(t *testing.T) *wire.Session {
	t.Helper()
	return openSession(t, startSandbox(t))
}

func openSession(t *testing.T, sb *sandbox) *wire.Session {
	t.Helper()
	s, err := wire.Open(deadline(t), sb.in, sb.out)
	if err != nil {
		t.Fatalf("Open: %v; the sandbox said: %s", err, sb.stderr.String())
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// deadline is a generous bound for anything that should take no time.
func deadline(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// testPath is the PATH of a job's environment.
const testPath = "PATH=/usr/local/bin:/usr/bin:/bin"

// workspace makes a directory that the agent's user owns.
func workspace(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for d := dir; d != os.TempDir() && d != "/"; d = filepath.Dir(d) {
		if err := os.Chmod(d, 0o755); err != nil {
			break // above our own
		}
	}
	if os.Getuid() == 0 {
		if err := os.Chown(dir, agentID, agentID); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// shell is a job that runs a shell script.
func shell(dir, script string) wire.Job {
	return wire.Job{ID: "job", Argv: []string{"sh", "-c", script}, Env: []string{testPath}, Dir: dir}
}

// An outcome is what a job did.
type outcome struct {
	wire.Exit
	out, err  string
	artifacts bytes.Buffer
}

// do runs a job to its end.
func do(t *testing.T, s *wire.Session, job wire.Job, stdin string) *outcome {
	t.Helper()
	o := &outcome{}
	var stdout, stderr strings.Builder
	exit, err := s.Run(deadline(t), job, strings.NewReader(stdin), wire.Handlers{
		Stdout:   func(b []byte) { stdout.Write(b) },
		Stderr:   func(b []byte) { stderr.Write(b) },
		Artifact: &o.artifacts,
	})
	if err != nil {
		t.Fatalf("Run: %v", err)
	}
	o.Exit, o.out, o.err = exit, stdout.String(), stderr.String()
	return o
}
