package probe

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// kernel makes a probe of an operation that the kernel should refuse. It runs on
// a thread that is thrown away, so that what an allowed one changes there is gone.
func kernel(operation func() error) func(context.Context, Probe) outcome {
	return kernelSays(func() (string, error) { return "allowed", operation() })
}

// kernelSays is kernel for an operation that can tell more.
func kernelSays(operation func() (string, error)) func(context.Context, Probe) outcome {
	return func(context.Context, Probe) outcome {
		done := make(chan outcome)
		go func() {
			runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
			detail, err := operation()
			if err != nil {
				done <- refused(err)
				return
			}
			done <- outcome{reached: true, detail: detail}
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

func rawSocket() error {
	return opens(unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_UDP))
}

func packetSocket() error {
	return opens(unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0))
}

// socketFamilies asks for a socket of every family that the kernel could know.
func socketFamilies() (string, error) {
	usual := []int{unix.AF_UNIX, unix.AF_INET, unix.AF_INET6, unix.AF_NETLINK, unix.AF_PACKET}
	var made []string
	for family := 1; family < unix.AF_MAX; family++ {
		if slices.Contains(usual, family) {
			continue
		}
		for _, kind := range []int{unix.SOCK_STREAM, unix.SOCK_DGRAM, unix.SOCK_SEQPACKET, unix.SOCK_RAW} {
			if opens(unix.Socket(family, kind|unix.SOCK_CLOEXEC, 0)) == nil {
				made = append(made, strconv.Itoa(family))
				break
			}
		}
	}
	if len(made) == 0 {
		return "", errors.New("none can be made")
	}
	return "made sockets of the families " + strings.Join(made, " "), nil
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

// nftables asks for a list of the tables, which needs the privilege to change
// them (nfnetlink, NFT_MSG_GETTABLE).
func nftables() error {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_NETFILTER)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	const size = unix.SizeofNlMsghdr + 4
	message := make([]byte, size)
	*(*unix.NlMsghdr)(unsafe.Pointer(&message[0])) = unix.NlMsghdr{
		Len:   size,
		Type:  unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_GETTABLE,
		Flags: unix.NLM_F_REQUEST | unix.NLM_F_DUMP | unix.NLM_F_ACK,
	}
	if err := unix.Sendto(fd, message, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return err
	}
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 1}); err != nil {
		return err
	}
	answer := make([]byte, 8192)
	n, _, err := unix.Recvfrom(fd, answer, 0)
	if err != nil {
		return err
	}
	header := (*unix.NlMsghdr)(unsafe.Pointer(&answer[0]))
	if n >= unix.SizeofNlMsghdr+4 && header.Type == unix.NLMSG_ERROR {
		if code := *(*int32)(unsafe.Pointer(&answer[unix.SizeofNlMsghdr])); code != 0 {
			return syscall.Errno(-code)
		}
	}
	return nil
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

// tryICMP sends an echo request by a ping socket, which needs no privilege where
// net.ipv4.ping_group_range allows it.
func tryICMP(ctx context.Context, p Probe) outcome {
	to, err := netip.ParseAddr(p.Address)
	if err != nil || !to.Is4() {
		return refused(fmt.Errorf("address %q is not an IPv4 address", p.Address))
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, unix.IPPROTO_ICMP)
	if err != nil {
		return refused(fmt.Errorf("make a ping socket: %w", err))
	}
	f := os.NewFile(uintptr(fd), "ping")
	c, err := net.FilePacketConn(f)
	f.Close()
	if err != nil {
		return refused(err)
	}
	defer c.Close()
	return ping(ctx, c, to, p.Payload)
}

func ping(ctx context.Context, c net.PacketConn, to netip.Addr, payload string) outcome {
	deadline, ok := ctx.Deadline()
	if !ok {
		deadline = time.Now().Add(defaultTimeout)
	}
	if err := c.SetDeadline(deadline); err != nil {
		return refused(err)
	}
	request := append([]byte{8, 0, 0, 0, 0, 0, 0, 1}, payload...) // the kernel fills in checksum and identifier
	if _, err := c.WriteTo(request, &net.UDPAddr{IP: to.AsSlice()}); err != nil {
		return refused(err)
	}
	answer := make([]byte, 256)
	n, from, err := c.ReadFrom(answer)
	if err != nil || n == 0 || answer[0] != 0 {
		return outcome{detail: fmt.Sprintf("sent, no answer: %v", err)}
	}
	return outcome{reached: true, detail: from.String() + " answered"}
}
