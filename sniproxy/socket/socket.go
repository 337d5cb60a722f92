// Package socket has the calls of the kernel that a tunnel makes on its sockets, none of
// which waits, and the options that the gate's connections have.
package socket

import (
	"io"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The calls here do not wait, so the Go runtime is not told of them: for each it
// would make ready to give the processor to others, and wake its monitor thread,
// which then looks on for milliseconds.

// failed is nil for no error.
func failed(call string, errno unix.Errno) error {
	if errno == 0 {
		return nil
	}
	return os.NewSyscallError(call, errno)
}

// Read reads what is there; n is 0 with io.EOF alone, and with any error.
func Read(fd int, b []byte) (int, error) {
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

// Write writes what there is room for.
func Write(fd int, b []byte) (int, error) {
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

// Splice moves up to most bytes between a pipe and a socket.
func Splice(from, to, most int) (int, error) {
	const flags = unix.SPLICE_F_MOVE | unix.SPLICE_F_NONBLOCK
	for {
		n, _, errno := unix.RawSyscall6(unix.SYS_SPLICE, uintptr(from), 0, uintptr(to), 0, uintptr(most), flags)
		switch errno {
		case 0:
			return int(n), nil
		case unix.EINTR:
		default:
			return 0, errno
		}
	}
}

// Shutdown ends what a socket sends.
func Shutdown(fd int) error {
	_, _, errno := unix.RawSyscall(unix.SYS_SHUTDOWN, uintptr(fd), unix.SHUT_WR, 0)
	return failed("shutdown", errno)
}

// Close closes a socket or pipe: neither waits, nor is there an error to act on.
func Close(fd int) { _, _, _ = unix.RawSyscall(unix.SYS_CLOSE, uintptr(fd), 0, 0) }

// Reset closes a connection so that nothing of what is still queued is
// delivered and the peer sees a cut rather than an end.
func Reset(fd int) {
	cutShort(fd)
	Close(fd)
}

// cutShort has the end of a connection be a reset.
func cutShort(fd int) {
	linger := unix.Linger{Onoff: 1}
	_, _, _ = unix.RawSyscall6(unix.SYS_SETSOCKOPT, uintptr(fd), unix.SOL_SOCKET, unix.SO_LINGER,
		uintptr(unsafe.Pointer(&linger)), unsafe.Sizeof(linger), 0) // fails only where it is gone
}

// Fault is what the kernel has found wrong with a connection, or nil.
func Fault(fd int) error {
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

// Unsent is how many bytes, with the end, the peer has not confirmed.
func Unsent(fd int) int {
	var n int32
	_, _, errno := unix.RawSyscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCOUTQ, uintptr(unsafe.Pointer(&n)))
	if errno != 0 {
		return 0
	}
	return int(n)
}
