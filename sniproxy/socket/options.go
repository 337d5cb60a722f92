package socket

import (
	"errors"
	"fmt"
	"net"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// KeepAlive finds a peer that vanished within about two minutes. No tunnel has
// an idle time-out: a model may think for long before its next token.
var KeepAlive = net.KeepAliveConfig{Enable: true, Idle: time.Minute, Interval: 15 * time.Second, Count: 4}

// ClientOptions sets on a socket that is to listen what the connections of clients
// have: keep-alive, no delay of short pieces, and buffers of a fixed size. The kernel
// gives a connection the options that its listener has when it is made, so they are set
// before a client can be there: call this from net.ListenConfig.Control.
func ClientOptions(listener syscall.RawConn) error {
	var err error
	if e := listener.Control(func(own uintptr) {
		fd := int(own)
		err = errors.Join(setNoDelay(fd), SetKeepAlive(fd), boundBuffers(fd))
	}); e != nil {
		return e
	}
	return err
}

// ClientBytes is the room that the kernel gives a connection of a client, each way,
// and no more: the way to a cell is short, and what stands in it is the gate's memory.
// The kernel doubles it, for what it needs itself, and gives less where the machine
// says so (net.core.wmem_max, rmem_max).
const ClientBytes = 256 << 10

// boundBuffers bounds what the connections that a listener accepts can hold, and
// finds out whether the kernel says how much they do.
func boundBuffers(fd int) error {
	if _, err := Held(fd); err != nil {
		return fmt.Errorf("asking what a socket holds, as Linux 4.12 and newer say: %w", err)
	}
	for _, name := range [...]int{unix.SO_SNDBUF, unix.SO_RCVBUF} {
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, name, ClientBytes); err != nil {
			return failed("setsockopt", err.(unix.Errno))
		}
	}
	return nil
}

// setNoDelay has short pieces go out at once.
func setNoDelay(fd int) error { return setOption(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1) }

// SetKeepAlive has the kernel find out when the peer has vanished. The time that it
// has been silent already counts.
func SetKeepAlive(fd int) error {
	return errors.Join(setOption(fd, unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1),
		setOption(fd, unix.IPPROTO_TCP, unix.TCP_KEEPIDLE, int(KeepAlive.Idle.Seconds())),
		setOption(fd, unix.IPPROTO_TCP, unix.TCP_KEEPINTVL, int(KeepAlive.Interval.Seconds())),
		setOption(fd, unix.IPPROTO_TCP, unix.TCP_KEEPCNT, KeepAlive.Count))
}

func setOption(fd, level, name, to int) error {
	value := int32(to)
	_, _, errno := unix.RawSyscall6(unix.SYS_SETSOCKOPT, uintptr(fd), uintptr(level), uintptr(name),
		uintptr(unsafe.Pointer(&value)), unsafe.Sizeof(value), 0)
	return failed("setsockopt", errno)
}

// Held is what the kernel holds for a socket: received and not read, queued and
// not confirmed, and set aside for more of it. A kernel that does not say is one
// before 4.12; see boundBuffers.
func Held(fd int) (n int64, err error) {
	const rmem, forward, queued, backlog = 0, 4, 5, 7 // linux/sock_diag.h
	var info [9]uint32
	size := uint32(unsafe.Sizeof(info))
	_, _, errno := unix.RawSyscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.SOL_SOCKET, unix.SO_MEMINFO,
		uintptr(unsafe.Pointer(&info)), uintptr(unsafe.Pointer(&size)), 0)
	if errno != 0 {
		return 0, failed("getsockopt", errno)
	}
	return int64(info[rmem]) + int64(info[forward]) + int64(info[queued]) + int64(info[backlog]), nil
}
