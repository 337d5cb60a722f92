package client

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// sockets are the transports to sockets, by their paths.
var sockets sync.Map

// way is the base URL of requests, and what carries them.
func (c *Client) way() (base string, transport http.RoundTripper) {
	path, local := strings.CutPrefix(c.Addr, "unix://")
	switch {
	case local:
		t, ok := sockets.Load(path)
		if !ok {
			t, _ = sockets.LoadOrStore(path, &http.Transport{
				DialContext:     func(ctx context.Context, _, _ string) (net.Conn, error) { return dialSocket(ctx, path) },
				IdleConnTimeout: direct.IdleConnTimeout,
			})
		}
		return "http://localhost", t.(*http.Transport)
	case c.Transport != nil:
		return strings.TrimSuffix(c.Addr, "/"), c.Transport
	}
	return strings.TrimSuffix(c.Addr, "/"), direct
}

// dialSocket connects to a socket on which root or this process's user listens: what
// follows is the token. The kernel says who does, whatever the path leads to.
func dialSocket(ctx context.Context, path string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "unix", path)
	if err != nil {
		return nil, err
	}
	listener, err := listenerOf(conn.(*net.UnixConn))
	if self := uint32(os.Geteuid()); err == nil && listener != 0 && listener != self {
		err = fmt.Errorf("the user %d listens on %s, who is neither root nor this user (%d): the token is not for them", listener, path, self)
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	return conn, nil
}

// listenerOf is the user who listens at the other end of a connection.
func listenerOf(conn *net.UnixConn) (uid uint32, err error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return 0, err
	}
	var cred *unix.Ucred
	var asked error
	err = raw.Control(func(fd uintptr) { cred, asked = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) })
	if err == nil {
		err = asked
	}
	if err != nil {
		return 0, fmt.Errorf("ask who listens: %w", err)
	}
	return cred.Uid, nil
}
