package dnsgate

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"sync"
	"syscall"
	"time"

	"sallyport/firewall"
	"sallyport/firewall/account"
	"sallyport/internal/contain"
)

// acceptPause is the wait after an accept that failed for want of memory or
// descriptors.
const acceptPause = 50 * time.Millisecond

// serveTCP answers the queries on the connections of ln until ctx ends, and
// returns when the last of them has ended.
func (c *cell) serveTCP(ctx context.Context, ln net.Listener) error {
	var open sync.WaitGroup
	defer open.Wait()
	slots := make(chan struct{}, c.MaxConns)
	for {
		conn, err := ln.Accept()
		if scarce(err) {
			c.Log.Warn("dnsgate: accept failed, trying again", "error", err)
			select {
			case <-time.After(acceptPause):
				continue
			case <-ctx.Done():
			}
		}
		if err != nil {
			return fmt.Errorf("dnsgate: accept: %w", err)
		}
		client := peer(conn)
		if !c.Prefix.Contains(client.Addr()) {
			conn.Close()
			c.foreign.Add(client)
			continue
		}
		select {
		case slots <- struct{}{}:
		default:
			conn.Close()
			c.conns.Add(client)
			continue
		}
		open.Go(func() {
			defer func() { <-slots }()
			defer contain.To(c)
			c.serveConn(ctx, conn, client)
		})
	}
}

// serveConn answers the queries on conn, which it closes, one after another:
// pipelined ones wait in the kernel's buffers.
func (c *cell) serveConn(ctx context.Context, conn net.Conn, client netip.AddrPort) {
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()

	end := time.Now().Add(c.Total)
	w, in, buf := c.newAnswerer(), bufio.NewReaderSize(conn, 1024), make([]byte, maxQuery)
	for range c.MaxQueries {
		deadline := time.Now().Add(c.Idle)
		if deadline.After(end) {
			deadline = end
		}
		if err := conn.SetDeadline(deadline); err != nil {
			return
		}
		msg, err := readMessage(in, buf)
		if err != nil {
			c.readFailed(err, client)
			return
		}
		w.now = time.Now()
		if !c.admit(client, w.now) {
			return
		}
		reply := w.answer(msg, client)
		if reply == nil {
			return // what cannot be answered is no DNS: neither is what follows
		}
		binary.BigEndian.PutUint16(reply, uint16(len(reply)-2))
		if _, err := conn.Write(reply); err != nil {
			return
		}
	}
	c.pipelined.Add(client)
}

// errLength is a length prefix that no query has.
var errLength = errors.New("the length is shorter than a header")

// readMessage reads one message with its length in front, RFC 1035, section
// 4.2.2, into buf; what exceeds buf is read and dropped. io.EOF is a clean end.
func readMessage(in *bufio.Reader, buf []byte) ([]byte, error) {
	var prefix [2]byte
	if _, err := io.ReadFull(in, prefix[:1]); err != nil {
		return nil, errIdle{err}
	}
	if _, err := io.ReadFull(in, prefix[1:]); err != nil {
		return nil, err
	}
	n := int(binary.BigEndian.Uint16(prefix[:]))
	if n < headerLen {
		return nil, errLength
	}
	kept := min(n, len(buf))
	if _, err := io.ReadFull(in, buf[:kept]); err != nil {
		return nil, err
	}
	if _, err := in.Discard(n - kept); err != nil {
		return nil, err
	}
	return buf[:kept], nil
}

// errIdle marks the failure of a read between two messages, where a client
// owes nothing.
type errIdle struct{ error }

// readFailed records why a connection ended, unless it was a client's right.
func (c *cell) readFailed(err error, client netip.AddrPort) {
	var idle errIdle
	switch {
	case errors.As(err, &idle):
	case errors.Is(err, os.ErrDeadlineExceeded):
		c.slow.Add(client)
	case errors.Is(err, errLength) && c.admit(client, time.Now()):
		c.deliver([]account.Record{{
			Time: time.Now(), Kind: account.KindDNS, Verdict: firewall.Deny, Reason: firewall.ReasonBadQuery,
			Detail: err.Error(), Client: client,
		}})
	}
}

// scarce reports whether an accept failed for something that passes.
func scarce(err error) bool {
	for _, e := range []error{syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM, syscall.ECONNABORTED} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// peer is the address of a connection's other end; the zero value, which is in
// no prefix, where it has none.
func peer(conn net.Conn) netip.AddrPort {
	if a, ok := conn.RemoteAddr().(*net.TCPAddr); ok {
		return unmap(a.AddrPort())
	}
	return netip.AddrPort{}
}
