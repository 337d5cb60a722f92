package evloop

import (
	"errors"
	"io"
	"os"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The calls here do not wait, so the Go runtime is not told of them: for each it
// would make ready to give the processor to others, and wake its monitor thread,
// which then looks on for milliseconds.

// wait takes events that are there.
func wait(epoll int, events []unix.EpollEvent) int {
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

// control adds or changes what is waited for on a descriptor.
func control(epoll, op, fd int, e unix.EpollEvent) error {
	_, _, errno := unix.RawSyscall6(unix.SYS_EPOLL_CTL, uintptr(epoll), uintptr(op), uintptr(fd), uintptr(unsafe.Pointer(&e)), 0, 0)
	if errno == 0 {
		return nil
	}
	return os.NewSyscallError("epoll_ctl", errno)
}

// Take takes the descriptor out of a connection or listener of package net, which is
// closed: Go's poller, which knows it, would wake for each event as well.
func Take(c interface {
	syscall.Conn
	io.Closer
}) (fd int, err error) {
	defer c.Close()
	raw, err := c.SyscallConn()
	if err != nil {
		return -1, err
	}
	e := raw.Control(func(own uintptr) { fd, err = unix.FcntlInt(own, unix.F_DUPFD_CLOEXEC, 0) })
	if err = errors.Join(err, e); err != nil {
		return -1, os.NewSyscallError("fcntl", err)
	}
	return fd, nil
}
