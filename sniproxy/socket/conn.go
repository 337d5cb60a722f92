package socket

import (
	"errors"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// Conn makes a connection of package net of a socket, which is the caller's no longer.
func Conn(fd int) (*net.TCPConn, error) {
	file := os.NewFile(uintptr(fd), "socket")
	defer file.Close()
	c, err := net.FileConn(file)
	if err != nil {
		return nil, err
	}
	conn, ok := c.(*net.TCPConn)
	if !ok {
		c.Close()
		return nil, errors.New("a socket that is not TCP")
	}
	if err := conn.SetKeepAliveConfig(KeepAlive); err != nil {
		conn.Close()
		return nil, err
	}
	return conn, nil
}

// Dup returns a descriptor more of a connection of package net.
func Dup(c *net.TCPConn) (fd int, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return -1, err
	}
	e := raw.Control(func(own uintptr) { fd, err = unix.FcntlInt(own, unix.F_DUPFD_CLOEXEC, 0) })
	return fd, errors.Join(err, e)
}

// ResetConn is Reset for a connection of package net.
func ResetConn(c *net.TCPConn) {
	do(c, cutShort)
	c.Close()
}

// HeldBy is Held for a connection of package net; one that is closed holds nothing.
func HeldBy(c *net.TCPConn) (n int64) {
	do(c, func(fd int) { n, _ = Held(fd) })
	return n
}

// IsBroken reports whether the kernel has found a connection broken.
func IsBroken(c *net.TCPConn) bool {
	broken := true // if it is closed
	do(c, func(fd int) { broken = Fault(fd) != nil })
	return broken
}

// do calls f with the descriptor of a connection, unless that is closed.
func do(c *net.TCPConn, f func(fd int)) {
	if raw, err := c.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { f(int(fd)) })
	}
}
