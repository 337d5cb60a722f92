package probe

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// kernel makes a probe of an operation that the kernel should refuse. It runs on
// a thread that is thrown away, so that what an allowed one changes there is gone.
func kernel(operation func() error) func(context.Context, Probe) finding {
	return kernelSays(func() (string, error) { return "allowed", operation() })
}

// kernelSays is kernel for an operation that can tell more.
func kernelSays(operation func() (string, error)) func(context.Context, Probe) finding {
	return func(context.Context, Probe) finding {
		done := make(chan finding)
		go func() {
			runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
			detail, err := operation()
			if err != nil {
				done <- refused(err)
				return
			}
			done <- finding{reached: true, detail: detail}
		}()
		return <-done
	}
}

func opens(fd int, err error) error {
	if err == nil {
		unix.Close(fd)
	}
	return err
}

// netAdmin sets a device's flags to what they are.
func netAdmin() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	request, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	if err := unix.IoctlIfreq(fd, unix.SIOCGIFFLAGS, request); err != nil {
		return err
	}
	return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, request)
}

func mount() error {
	dir, err := os.MkdirTemp("", "probe")
	if err != nil {
		dir = "/tmp" // where nothing can be written, the mount may still be tried
	} else {
		defer os.Remove(dir)
	}
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=4k"); err != nil {
		return err
	}
	return unix.Unmount(dir, unix.MNT_DETACH)
}

// Nothing is the argument with which the calling program is started to see
// whether it can be; it must do nothing then.
const Nothing = "nothing"

// unshare starts a process in new namespaces; a process with threads cannot
// make itself a user namespace. The process itself does nothing.
func unshare() error {
	kinds := []struct {
		name string
		flag uintptr
	}{
		{"user", unix.CLONE_NEWUSER}, {"network", unix.CLONE_NEWNET},
		{"mount", unix.CLONE_NEWNS}, {"process", unix.CLONE_NEWPID},
	}
	var refusals error
	for _, k := range kinds {
		cmd := exec.Command("/proc/self/exe", Nothing)
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: k.flag}
		err := cmd.Start()
		if err == nil {
			cmd.Process.Kill()
			cmd.Wait()
			return nil
		}
		refusals = errors.Join(refusals, fmt.Errorf("%s namespace: %w", k.name, err))
	}
	return refusals
}

// setUID becomes root on this thread alone.
func setUID() error {
	if os.Getuid() == 0 {
		return nil // which is worse
	}
	if _, _, e := unix.RawSyscall(unix.SYS_SETUID, 0, 0, 0); e != 0 {
		return e
	}
	return nil
}

// mknod makes a device like /dev/null.
func mknod() error {
	dir, err := os.MkdirTemp("", "probe")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	return unix.Mknod(dir+"/null", unix.S_IFCHR|0o600, int(unix.Mkdev(1, 3)))
}

// chroot enters the root directory, which changes nothing.
func chroot() error { return unix.Chroot("/") }

func ptracePID1() error {
	if os.Getpid() == 1 {
		return errors.New("this is PID 1")
	}
	var refusals error
	for _, name := range []string{"/proc/1/mem", "/proc/1/environ", "/proc/1/fd", "/proc/1/root/.", "/proc/1/fd/0"} {
		f, err := os.Open(name)
		if err == nil {
			f.Close()
			return nil
		}
		refusals = errors.Join(refusals, err)
	}
	// PTRACE_SEIZE stops nothing and ends with this thread.
	_, _, e := unix.RawSyscall6(unix.SYS_PTRACE, unix.PTRACE_SEIZE, 1, 0, 0, 0, 0)
	if e == 0 {
		return nil
	}
	return errors.Join(refusals, fmt.Errorf("ptrace: %w", e))
}

// limitsPID1 sets a limit of PID 1 to what it is.
func limitsPID1() error {
	if os.Getpid() == 1 {
		return errors.New("this is PID 1")
	}
	var now unix.Rlimit
	if err := unix.Prlimit(1, unix.RLIMIT_CPU, nil, &now); err != nil {
		return err
	}
	return unix.Prlimit(1, unix.RLIMIT_CPU, &now, nil)
}

// coreLimit takes the limit of core dumps to 0 for a moment. At 1 alone does the kernel
// start no handler of the host's for a process that dies (fs/coredump.c).
func coreLimit() (string, error) {
	var before, after unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_CORE, &before); err != nil {
		return "", err
	}
	// Whether it is refused, or not done without a word, what counts is what comes of it.
	_ = unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{Max: before.Max})
	if err := unix.Getrlimit(unix.RLIMIT_CORE, &after); err != nil {
		return "", err
	}
	if before != after {
		_ = unix.Setrlimit(unix.RLIMIT_CORE, &before) // up to its own maximum it may
	}
	if before.Cur == 1 && before.Max == 1 && before == after {
		return "", errors.New("the limit of core dumps stays 1")
	}
	return fmt.Sprintf("the limit of core dumps is %d, at most %d, and can be made %d", before.Cur, before.Max, after.Cur), nil
}

func keyctl() error {
	_, err := unix.KeyctlGetKeyringID(unix.KEY_SPEC_SESSION_KEYRING, false)
	return err
}

// bpf makes the smallest map (bpf(2), BPF_MAP_CREATE).
func bpf() error {
	attr := struct{ mapType, keySize, valueSize, maxEntries uint32 }{unix.BPF_MAP_TYPE_ARRAY, 4, 4, 1}
	fd, _, e := unix.Syscall(unix.SYS_BPF, unix.BPF_MAP_CREATE, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr))
	return opened(fd, e)
}

func perf() error {
	attr := unix.PerfEventAttr{
		Type: unix.PERF_TYPE_SOFTWARE, Config: unix.PERF_COUNT_SW_CPU_CLOCK,
		Bits: unix.PerfBitExcludeKernel | unix.PerfBitExcludeHv | unix.PerfBitDisabled,
	}
	attr.Size = uint32(unsafe.Sizeof(attr))
	return opens(unix.PerfEventOpen(&attr, 0, -1, -1, unix.PERF_FLAG_FD_CLOEXEC))
}

func userfaultfd() error {
	const userModeOnly = 1 // which the kernel allows to anyone (userfaultfd(2))
	fd, _, e := unix.Syscall(unix.SYS_USERFAULTFD, unix.O_CLOEXEC|userModeOnly, 0, 0)
	return opened(fd, e)
}

func ioUring() error {
	var parameters [120]byte // struct io_uring_params (io_uring_setup(2))
	fd, _, e := unix.Syscall(unix.SYS_IO_URING_SETUP, 1, uintptr(unsafe.Pointer(&parameters)), 0)
	return opened(fd, e)
}

func openByHandle() error {
	handle, _, err := unix.NameToHandleAt(unix.AT_FDCWD, "/", 0)
	if err != nil {
		handle = unix.NewFileHandle(1, make([]byte, 8)) // refused or stale, which differ
	}
	err = opens(unix.OpenByHandleAt(unix.AT_FDCWD, handle, unix.O_RDONLY|unix.O_CLOEXEC))
	if errors.Is(err, unix.ESTALE) {
		return nil // it looked
	}
	return err
}

func opened(fd uintptr, e unix.Errno) error {
	if e != 0 {
		return e
	}
	return unix.Close(int(fd))
}
