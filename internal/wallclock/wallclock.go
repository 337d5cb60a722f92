// Package wallclock runs tests in a process whose wall clock jumps back and forth
// by hours, as if somebody set it all the time. Time that is measured by the
// monotonic clock does not notice; a deadline that is not comes hours too early or
// too late.
//
//	func TestClockJumps(t *testing.T) {
//		wallclock.Jump(t, map[string]func(*testing.T){"TestDeadline": TestDeadline})
//	}
//
// Jump runs the test binary a second time, for the calling test alone. As that
// process starts, it is kept from the kernel's vDSO, so that it asks for the time by
// a system call; a seccomp filter hands these calls to the first process, which
// answers with the time and some hours more or less. That needs no privilege, but a
// kernel that lets a process trace its child and listen to its seccomp filter (Linux
// 5.7 or newer).
package wallclock

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// inside is set in the process whose clock jumps.
const inside = "SALLYPORT_TEST_WALLCLOCK"

// hour is how far the clock jumps at most, from the true time.
const hour = time.Hour

// limit bounds the second process.
const limit = 5 * time.Minute

// Jump runs tests, by their names, in a process whose wall clock jumps. They must be
// such as can be run as subtests of t.
func Jump(t *testing.T, tests map[string]func(*testing.T)) {
	t.Helper()
	if os.Getenv(inside) != "" {
		jumping(t, tests)
		return
	}
	ours, theirs, err := socketPair()
	if err != nil {
		t.Fatal(err)
	}
	defer ours.Close()
	var out bytes.Buffer
	cmd := exec.Command("/proc/self/exe", "-test.run=^"+t.Name()+"$", "-test.v", "-test.timeout="+limit.String())
	cmd.Env = append(os.Environ(), inside+"=1")
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.ExtraFiles = []*os.File{theirs}
	cmd.SysProcAttr = &syscall.SysProcAttr{Ptrace: true}
	err = startWithoutVDSO(cmd)
	theirs.Close()
	if err != nil {
		t.Fatal("start a process without vDSO:", err)
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	served := serve(ours)
	if err := errors.Join(<-done, served); err != nil {
		t.Fatalf("with a jumping clock: %v\n%s", err, out.String())
	}
	for name := range tests {
		if !strings.Contains(out.String(), "--- PASS: "+t.Name()+"/"+name+" ") {
			t.Errorf("%s did not run:\n%s", name, out.String())
		}
	}
}

// jumping is Jump in the second process.
func jumping(t *testing.T, tests map[string]func(*testing.T)) {
	t.Helper()
	began := time.Now()
	if err := install(3); err != nil {
		t.Fatal("hand the clock over:", err)
	}
	// The control: the wall clock does jump both ways, time itself does not.
	var least, most time.Duration
	last := time.Now().Round(0)
	for range 1000 {
		now := time.Now().Round(0) // without its monotonic reading
		least, most = min(least, now.Sub(last)), max(most, now.Sub(last))
		last = now
	}
	if least > -hour || most < hour || time.Since(began) > limit {
		t.Fatalf("the clock jumped by %v to %v in %v: this proves nothing", least, most, time.Since(began))
	}
	for _, name := range slices.Sorted(maps.Keys(tests)) {
		t.Run(name, tests[name])
	}
}

func socketPair() (ours, theirs *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("socketpair: %w", err)
	}
	return os.NewFile(uintptr(fds[0]), "ours"), os.NewFile(uintptr(fds[1]), "theirs"), nil
}

// startWithoutVDSO starts cmd, which asks to be traced, hides the vDSO before its
// first instruction, and lets it go.
func startWithoutVDSO(cmd *exec.Cmd) error {
	runtime.LockOSThread() // a tracer is a thread
	defer runtime.UnlockOSThread()
	if err := cmd.Start(); err != nil {
		return err
	}
	pid := cmd.Process.Pid
	var status unix.WaitStatus
	_, err := unix.Wait4(pid, &status, 0, nil)
	switch {
	case err == nil && !status.Stopped():
		return fmt.Errorf("it ended with %v", status)
	case err == nil:
		err = hideVDSO(pid)
	}
	if err == nil {
		err = unix.PtraceDetach(pid)
	}
	if err != nil {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
	return err
}
