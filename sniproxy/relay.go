package sniproxy

import (
	"errors"
	"io"
	"net"
	"os"
	"sync/atomic"
	"syscall"
)

// A tunnel copies between two connections until both directions have ended.
type tunnel struct {
	client, up *net.TCPConn
	ended      atomic.Int32 // directions that came to their end
}

// relay copies both ways and returns the bytes of each. The end of one direction
// is passed on as a half-close while the other goes on; a connection that breaks
// breaks the other one too. Both are closed when it returns.
func relay(client, up *net.TCPConn) (sent, received int64) {
	t := &tunnel{client: client, up: up}
	done := make(chan int64, 1)
	go func() { done <- t.copy(client, up) }()
	sent = t.copy(up, client)
	return sent, <-done
}

// copy is one direction. Between two TCP connections io.Copy leaves the copying
// to the kernel (splice).
func (t *tunnel) copy(dst, src *net.TCPConn) int64 {
	n, err := io.Copy(dst, src)
	if err == nil {
		err = dst.CloseWrite()
	}
	switch {
	case err != nil:
		reset(t.client)
		reset(t.up)
	case t.ended.Add(1) == 2:
		t.client.Close()
		t.up.Close()
	case awaitFault(src):
		reset(t.client)
		reset(t.up)
	}
	return n
}

// awaitFault waits on a connection that has no more to read. It returns true
// once the kernel finds the connection broken, by a reset or because keep-alive
// went unanswered, and false when it is closed or its deadline passes. Without
// it, a client that closed both ways would keep a tunnel to a silent upstream.
func awaitFault(c *net.TCPConn) bool {
	raw, err := c.SyscallConn()
	if err != nil {
		return false
	}
	broken := false
	err = raw.Read(func(fd uintptr) bool {
		soerr, err := syscall.GetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_ERROR)
		broken = err != nil || soerr != 0
		return broken
	})
	if err != nil && !errors.Is(err, net.ErrClosed) && !errors.Is(err, os.ErrDeadlineExceeded) {
		return true
	}
	return broken
}
