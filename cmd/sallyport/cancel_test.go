package main

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A background command is a sallyport that a test sends signals to.
type background struct {
	t              *testing.T
	cmd            *exec.Cmd
	stdout, stderr bytes.Buffer
	lines          chan string // of both
}

func start(t *testing.T, e testExecutor, args ...string) *background {
	t.Helper()
	b := &background{t: t, cmd: exec.CommandContext(t.Context(), "sallyport", args...), lines: make(chan string, 1000)}
	b.cmd.Env = append(os.Environ(), "SALLYPORT_ADDR="+e.url, "SALLYPORT_TOKEN="+testToken)
	r, w := io.Pipe()
	b.cmd.Stdout = io.MultiWriter(w, &b.stdout)
	b.cmd.Stderr = io.MultiWriter(w, &b.stderr)
	if err := b.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(b.lines)
		for s := bufio.NewScanner(r); s.Scan(); {
			b.lines <- s.Text()
		}
	}()
	t.Cleanup(func() { w.Close() })
	return b
}

// await waits for a line with text in it and returns it.
func (b *background) await(text string) string {
	b.t.Helper()
	timeout := time.After(20 * time.Second)
	for {
		select {
		case line, ok := <-b.lines:
			if !ok {
				b.t.Fatalf("the output ended without %q", text)
			}
			if strings.Contains(line, text) {
				return line
			}
		case <-timeout:
			b.t.Fatalf("no %q in the output", text)
		}
	}
}

func (b *background) signal(sig os.Signal) {
	b.t.Helper()
	if err := b.cmd.Process.Signal(sig); err != nil {
		b.t.Fatal(err)
	}
}

// code waits for the end and returns the exit code, -1 for an end by a signal.
func (b *background) code() int {
	b.t.Helper()
	err := b.cmd.Wait()
	if _, ok := errors.AsType[*exec.ExitError](err); err != nil && !ok {
		b.t.Fatal(err)
	}
	return b.cmd.ProcessState.ExitCode()
}

func TestInterrupt(t *testing.T) {
	e := startExecutor(t, "")
	for name, sig := range map[string]os.Signal{"interrupt": os.Interrupt, "terminate": syscall.SIGTERM} {
		t.Run(name, func(t *testing.T) {
			b := start(t, e, "run", "--", "sh", "-c", "echo begun >&2; sleep 60")
			b.await("begun")
			b.signal(sig)
			if code := b.code(); code != exitCancelled {
				t.Errorf("exit code %d, want %d", code, exitCancelled)
			}
			if !strings.Contains(b.stderr.String(), "cancelling the run") {
				t.Errorf("standard error %q", b.stderr.String())
			}
			for _, want := range []string{"sandbox_cancelled: ", " failed after ", "Receipt of policy strict"} {
				if !strings.Contains(b.stdout.String(), want) {
					t.Errorf("standard output lacks %q: %s", want, b.stdout.String())
				}
			}
		})
	}
}

// TestInterruptTwice requires that the second signal ends the program at once: the
// command in the sandbox does not mind being asked to end.
func TestInterruptTwice(t *testing.T) {
	e := startExecutor(t, "")
	b := start(t, e, "run", "--", "sh", "-c", "trap '' TERM; echo begun >&2; sleep 3; sleep 60")
	b.await("begun")
	b.signal(os.Interrupt)
	b.await("cancelling the run")
	b.signal(os.Interrupt)
	if code := b.code(); code != exitCancelled {
		t.Errorf("exit code %d, want %d", code, exitCancelled)
	}
	if out := b.stdout.String(); strings.Contains(out, "Receipt") {
		t.Errorf("the program waited for the end: %s", out)
	}
}

// TestInterruptLogs requires that the follower of a log leaves the run alone.
func TestInterruptLogs(t *testing.T) {
	e := startExecutor(t, "")
	b := start(t, e, "run", "--", "sh", "-c", "echo begun >&2; sleep 3; echo the end")
	accepted := strings.Fields(b.await("  run "))
	logs := start(t, e, "logs", "-f", accepted[len(accepted)-1])
	logs.await("begun")
	logs.signal(os.Interrupt)
	if code := logs.code(); code != exitCancelled {
		t.Errorf("exit code of logs %d, want %d", code, exitCancelled)
	}
	if code := b.code(); code != exitOK || !strings.Contains(b.stdout.String(), "the end") {
		t.Errorf("the run ended with %d and %q", code, b.stdout.String())
	}
}
