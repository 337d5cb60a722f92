package socket

import (
	"net"
	"net/netip"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Accept takes one connection of a listener, and its client's address.
func Accept(fd int) (conn int, client netip.AddrPort, err error) {
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

// Local is the address of a socket's own end, Peer that of the other one, which there
// is only once it has connected.
func Local(fd int) (addr netip.AddrPort, ok bool) { return address(unix.SYS_GETSOCKNAME, fd) }

// Peer: see Local.
func Peer(fd int) (addr netip.AddrPort, ok bool) { return address(unix.SYS_GETPEERNAME, fd) }

func address(call uintptr, fd int) (addr netip.AddrPort, ok bool) {
	var sa unix.RawSockaddrAny
	size := uint32(unix.SizeofSockaddrAny)
	_, _, errno := unix.RawSyscall(call, uintptr(fd), uintptr(unsafe.Pointer(&sa)), uintptr(unsafe.Pointer(&size)))
	return rawAddrPort(&sa), errno == 0
}

// IsConnected reports whether a socket has connected. On this machine, or in its
// containers, that is so as soon as it began.
func IsConnected(fd int) bool {
	_, ok := Peer(fd)
	return ok
}

// Connect begins to connect to addr and does not wait for the end of it.
// Errors name the address as those of net.Dial do.
func Connect(addr netip.AddrPort) (fd int, err error) {
	addr = netip.AddrPortFrom(addr.Addr().Unmap(), addr.Port())
	family := unix.AF_INET
	if addr.Addr().Is6() {
		family = unix.AF_INET6
	}
	n, _, errno := unix.RawSyscall(unix.SYS_SOCKET, uintptr(family), unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if errno != 0 {
		return -1, DialError(addr, failed("socket", errno))
	}
	fd = int(n)
	if err = setNoDelay(fd); err == nil {
		if errno = connectRaw(fd, addr); errno != unix.EINPROGRESS {
			err = failed("connect", errno)
		}
	}
	if err != nil {
		Close(fd)
		return -1, DialError(addr, err)
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

func DialError(addr netip.AddrPort, err error) error {
	return &net.OpError{Op: "dial", Net: "tcp", Addr: net.TCPAddrFromAddrPort(addr), Err: err}
}
