package pid1

import (
	"fmt"
	"math"
	"os"
	"os/signal"
	"runtime"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

// takeOver makes this process fit to be the parent of an agent of the same user:
// the agent can neither look into it nor end it by a signal.
func takeOver() (*processes, error) {
	// Opened first: the files of a process that is not dumpable belong to root.
	oom, err := unix.Open("/proc/self/oom_score_adj", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		oom = -1 // without it the kernel chooses by size alone
	}
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return nil, fmt.Errorf("hide from processes of the same user: %w", err)
	}
	if err := closeOnExec(); err != nil {
		return nil, err
	}
	unix.Umask(0o022)
	startThreads()
	if err := heedSignals(); err != nil {
		return nil, err
	}
	ignoreSignals()
	if os.Getpid() == 1 {
		if err := shieldFaults(); err != nil {
			return nil, err
		}
	} else {
		if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
			return nil, fmt.Errorf("become the parent of orphans: %w", err)
		}
	}
	return newProcesses(oom), nil
}

const (
	// maxProcs bounds how many threads run Go code at a time; PID 1 only carries
	// bytes.
	maxProcs = 2
	// spareThreads is more than ever block at a time: on standard input and output,
	// on an artifact, in the runtime's own work.
	spareThreads = 12
)

// startThreads makes the runtime start all the threads it will need. It keeps
// them; were it to want another one while a fork bomb has used up the sandbox's
// processes, it would end PID 1.
func startThreads() {
	runtime.GOMAXPROCS(min(maxProcs, runtime.GOMAXPROCS(0)))
	var up, down sync.WaitGroup
	release := make(chan struct{})
	for range spareThreads {
		up.Add(1)
		down.Go(func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			up.Done()
			<-release
		})
	}
	up.Wait()
	close(release)
	down.Wait()
}

// closeOnExec keeps descriptors that this process was started with from its
// children. Those it opens itself are so anyway.
func closeOnExec() error {
	err := unix.CloseRange(3, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC)
	if err == nil {
		return nil
	}
	// An engine's system call filter may not know close_range.
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return fmt.Errorf("close inherited descriptors: %w", err)
	}
	for fd := 3; uint64(fd) < min(limit.Cur, 65536); fd++ {
		unix.CloseOnExec(fd)
	}
	return nil
}

// The kernel's struct sigaction and signal set (signal(7)); the zero value is the
// default action.
type sigaction struct {
	handler, flags, restorer, mask uint64
}

const (
	sigIgnored    = 1  // SIG_IGN
	signalCount   = 64 // the kernel's, the C library's own among them
	signalSetSize = 8  // bytes
)

func rtSigaction(s unix.Signal, act, old *sigaction) error {
	_, _, e := unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(s), uintptr(unsafe.Pointer(act)), uintptr(unsafe.Pointer(old)), signalSetSize, 0, 0)
	if e != 0 {
		return e
	}
	return nil
}

// heedSignals gives the signals that this process was started to ignore their
// default action, since a job would inherit that, too. The runtime does so for
// those that it handles, which leaves out the C library's.
func heedSignals() error {
	for s := unix.Signal(1); s <= signalCount; s++ {
		var old sigaction
		if err := rtSigaction(s, nil, &old); err != nil {
			return fmt.Errorf("look at the action of signal %d: %w", s, err)
		}
		if old.handler != sigIgnored {
			continue
		}
		if err := rtSigaction(s, &sigaction{}, nil); err != nil {
			return fmt.Errorf("heed signal %d: %w", s, err)
		}
	}
	return nil
}

// ignoreSignals lets signals of the agent pass without effect. They are caught
// and dropped rather than ignored, because a child would inherit that.
func ignoreSignals() {
	unread := make(chan os.Signal, 1) // what does not fit is dropped, too
	signal.Notify(unread)
}

// shieldFaults takes from the runtime the signals that mean a fault of its own:
// by sigqueue(3) the agent can send them so that they look like one. A PID 1
// without a handler does not get them from its namespace (pid_namespaces(7)); a
// real fault ends it as before, only without a trace of the stack.
func shieldFaults() error {
	faults := []unix.Signal{unix.SIGILL, unix.SIGTRAP, unix.SIGBUS, unix.SIGFPE, unix.SIGSEGV, unix.SIGSTKFLT, unix.SIGSYS}
	for _, s := range faults {
		if err := rtSigaction(s, &sigaction{}, nil); err != nil {
			return fmt.Errorf("give up the handler of %v: %w", s, err)
		}
	}
	return nil
}
