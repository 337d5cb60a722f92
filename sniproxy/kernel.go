package sniproxy

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The calls here do not wait, so the Go runtime is not told of them: for each it
// would make ready to give the processor to others, and wake its monitor thread,
// which then looks on for milliseconds.

// epollNow takes events that are there.
func epollNow(epoll int, events []unix.EpollEvent) int {
	for {
		n, _, errno := unix.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(epoll), uintptr(unsafe.Pointer(unsafe.SliceData(events))), uintptr(len(events)), 0, 0, 0)
		switch errno {
		case 0:
			return int(n)
		case unix.EINTR:
		default:
			return 0
		}
	}
}

// epollSet adds or changes what is waited for on a descriptor.
func epollSet(epoll, op, fd int, e unix.EpollEvent) error {
	_, _, errno := unix.RawSyscall6(unix.SYS_EPOLL_CTL, uintptr(epoll), uintptr(op), uintptr(fd), uintptr(unsafe.Pointer(&e)), 0, 0)
	return failed("epoll_ctl", errno)
}

// failed is nil for no error.
func failed(call string, errno unix.Errno) error {
	if errno == 0 {
		return nil
	}
	return os.NewSyscallError(call, errno)
}

// readNow reads what is there; n is 0 with io.EOF alone, and with any error.
func readNow(fd int, b []byte) (int, error) {
	for {
		n, _, errno := unix.RawSyscall(unix.SYS_READ, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)))
		switch {
		case errno == unix.EINTR:
		case errno != 0:
			return 0, errno
		case n == 0:
			return 0, io.EOF
		default:
			return int(n), nil
		}
	}
}

// writeNow writes what there is room for.
func writeNow(fd int, b []byte) (int, error) {
	for {
		n, _, errno := unix.RawSyscall(unix.SYS_WRITE, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)))
		switch errno {
		case 0:
			return int(n), nil
		case unix.EINTR:
		default:
			return 0, errno
		}
	}
}

// spliceNow moves up to turnBytes between a pipe and a socket.
func spliceNow(from, to int) (int, error) {
	const flags = unix.SPLICE_F_MOVE | unix.SPLICE_F_NONBLOCK
	for {
		n, _, errno := unix.RawSyscall6(unix.SYS_SPLICE, uintptr(from), 0, uintptr(to), 0, turnBytes, flags)
		switch errno {
		case 0:
			return int(n), nil
		case unix.EINTR:
		default:
			return 0, errno
		}
	}
}

// shutdownNow ends what a socket sends.
func shutdownNow(fd int) error {
	_, _, errno := unix.RawSyscall(unix.SYS_SHUTDOWN, uintptr(fd), unix.SHUT_WR, 0)
	return failed("shutdown", errno)
}

// closeNow closes a socket or pipe: neither waits, nor is there an error to act on.
func closeNow(fd int) { _, _, _ = unix.RawSyscall(unix.SYS_CLOSE, uintptr(fd), 0, 0) }

// resetNow closes a connection so that nothing of what is still queued is
// delivered and the peer sees a cut rather than an end.
func resetNow(fd int) {
	linger := unix.Linger{Onoff: 1}
	_, _, _ = unix.RawSyscall6(unix.SYS_SETSOCKOPT, uintptr(fd), unix.SOL_SOCKET, unix.SO_LINGER,
		uintptr(unsafe.Pointer(&linger)), unsafe.Sizeof(linger), 0) // fails only where it is gone
	closeNow(fd)
}

// faultNow is what the kernel has found wrong with a connection, or nil.
func faultNow(fd int) error {
	var value int32
	size := uint32(unsafe.Sizeof(value))
	_, _, errno := unix.RawSyscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.SOL_SOCKET, unix.SO_ERROR,
		uintptr(unsafe.Pointer(&value)), uintptr(unsafe.Pointer(&size)), 0)
	switch {
	case errno != 0:
		return errno
	case value != 0:
		return unix.Errno(value)
	}
	return nil
}

// unsentNow is how many bytes, with the end, the peer has not confirmed.
func unsentNow(fd int) int {
	var n int32
	_, _, errno := unix.RawSyscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCOUTQ, uintptr(unsafe.Pointer(&n)))
	if errno != 0 {
		return 0
	}
	return int(n)
}

// acceptNow takes one connection of a listener, and its client's address.
func acceptNow(fd int) (conn int, client netip.AddrPort, err error) {
	var sa unix.RawSockaddrAny
	size := uint32(unix.SizeofSockaddrAny)
	n, _, errno := unix.RawSyscall6(unix.SYS_ACCEPT4, uintptr(fd), uintptr(unsafe.Pointer(&sa)), uintptr(unsafe.Pointer(&size)),
		unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0, 0)
	if errno != 0 {
		return -1, netip.AddrPort{}, errno
	}
	return int(n), rawAddrPort(&sa), nil
}

// rawAddrPort reads an address of the kernel's; that of another family than
// IPv4 and IPv6 is none.
func rawAddrPort(sa *unix.RawSockaddrAny) netip.AddrPort {
	switch sa.Addr.Family {
	case unix.AF_INET:
		a := (*unix.RawSockaddrInet4)(unsafe.Pointer(sa))
		return netip.AddrPortFrom(netip.AddrFrom4(a.Addr), networkOrder(a.Port))
	case unix.AF_INET6:
		a := (*unix.RawSockaddrInet6)(unsafe.Pointer(sa))
		return netip.AddrPortFrom(netip.AddrFrom16(a.Addr).Unmap(), networkOrder(a.Port))
	}
	return netip.AddrPort{}
}

// networkOrder turns a port into what the kernel takes for it, and back.
func networkOrder(port uint16) uint16 {
	b := (*[2]byte)(unsafe.Pointer(&port))
	return uint16(b[0])<<8 | uint16(b[1])
}

// nameNow asks for one of the addresses of a socket: SYS_GETSOCKNAME is its own,
// SYS_GETPEERNAME the other end's, which there is only once it has connected.
func nameNow(call uintptr, fd int) (addr netip.AddrPort, ok bool) {
	var sa unix.RawSockaddrAny
	size := uint32(unix.SizeofSockaddrAny)
	_, _, errno := unix.RawSyscall(call, uintptr(fd), uintptr(unsafe.Pointer(&sa)), uintptr(unsafe.Pointer(&size)))
	return rawAddrPort(&sa), errno == 0
}

// isConnected reports whether a socket has connected. On this machine, or in its
// containers, that is so as soon as it began.
func isConnected(fd int) bool {
	_, ok := nameNow(unix.SYS_GETPEERNAME, fd)
	return ok
}

// connectNow begins to connect to addr and does not wait for the end of it.
// Errors name the address as those of net.Dial do.
func connectNow(addr netip.AddrPort) (fd int, err error) {
	addr = netip.AddrPortFrom(addr.Addr().Unmap(), addr.Port())
	family := unix.AF_INET
	if addr.Addr().Is6() {
		family = unix.AF_INET6
	}
	n, _, errno := unix.RawSyscall(unix.SYS_SOCKET, uintptr(family), unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if errno != 0 {
		return -1, dialError(addr, failed("socket", errno))
	}
	fd = int(n)
	if err = setNoDelay(fd); err == nil {
		if errno = connectRaw(fd, addr); errno != unix.EINPROGRESS {
			err = failed("connect", errno)
		}
	}
	if err != nil {
		closeNow(fd)
		return -1, dialError(addr, err)
	}
	return fd, nil
}

func connectRaw(fd int, addr netip.AddrPort) (errno unix.Errno) {
	port := networkOrder(addr.Port())
	if addr.Addr().Is6() {
		sa := unix.RawSockaddrInet6{Family: unix.AF_INET6, Addr: addr.Addr().As16(), Port: port}
		_, _, errno = unix.RawSyscall(unix.SYS_CONNECT, uintptr(fd), uintptr(unsafe.Pointer(&sa)), unsafe.Sizeof(sa))
		return errno
	}
	sa := unix.RawSockaddrInet4{Family: unix.AF_INET, Addr: addr.Addr().As4(), Port: port}
	_, _, errno = unix.RawSyscall(unix.SYS_CONNECT, uintptr(fd), uintptr(unsafe.Pointer(&sa)), unsafe.Sizeof(sa))
	return errno
}

func dialError(addr netip.AddrPort, err error) error {
	return &net.OpError{Op: "dial", Net: "tcp", Addr: net.TCPAddrFromAddrPort(addr), Err: err}
}

// setNoDelay has short pieces go out at once.
func setNoDelay(fd int) error { return setOption(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1) }

// setKeepAlive has the kernel find out when the peer has vanished. The time that it
// has been silent already counts.
func setKeepAlive(fd int) error {
	return errors.Join(setOption(fd, unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1),
		setOption(fd, unix.IPPROTO_TCP, unix.TCP_KEEPIDLE, int(keepAlive.Idle.Seconds())),
		setOption(fd, unix.IPPROTO_TCP, unix.TCP_KEEPINTVL, int(keepAlive.Interval.Seconds())),
		setOption(fd, unix.IPPROTO_TCP, unix.TCP_KEEPCNT, keepAlive.Count))
}

func setOption(fd, level, name, to int) error {
	value := int32(to)
	_, _, errno := unix.RawSyscall6(unix.SYS_SETSOCKOPT, uintptr(fd), uintptr(level), uintptr(name),
		uintptr(unsafe.Pointer(&value)), unsafe.Sizeof(value), 0)
	return failed("setsockopt", errno)
}

// descriptor takes the connection out of a net.TCPConn, which is closed.
func descriptor(c *net.TCPConn) (fd int, err error) {
	defer c.Close()
	raw, err := c.SyscallConn()
	if err != nil {
		return -1, err
	}
	if e := raw.Control(func(own uintptr) { fd, err = unix.FcntlInt(own, unix.F_DUPFD_CLOEXEC, 0) }); e != nil {
		return -1, e
	}
	if err != nil {
		return -1, os.NewSyscallError("fcntl", err)
	}
	return fd, nil
}
