package sniproxy

import (
	"context"
	"errors"
	"fmt"
	"net"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"sallyport/firewall"
	"sallyport/firewall/account"
	"sallyport/internal/contain"
)

// How long a listener rests that could not accept: the first time, doubled each
// time after that up to the last, and while records wait to be delivered.
const (
	firstRest = 5 * time.Millisecond
	longRest  = time.Second
)

// ServeTLS tunnels the connections that ln accepts to port 443 of the host that
// each ClientHello names; ln must be a TCP listener of the system's. When ctx ends
// it closes ln, cuts every connection, waits for all that it started and returns
// nil; an error means that ln cannot be served.
func (s *Server) ServeTLS(ctx context.Context, ln net.Listener) error {
	defer ln.Close()
	v := &service{Server: s, kind: account.KindTLS, port: portTLS}
	if err := s.check(); err != nil {
		return err
	}
	fd, err := listening(ln)
	if err != nil {
		return fmt.Errorf("accepting %s connections: %w", v.kind, err)
	}
	if v.loop, err = loops.join(); err != nil {
		closeNow(fd)
		return fmt.Errorf("serving %s connections: %w", v.kind, err)
	}
	defer loops.leave(v.loop)
	var cancel context.CancelFunc
	v.ctx, cancel = context.WithCancel(ctx)
	defer cancel()
	door := &door{v: v, fd: fd}
	door.timer.owner = door
	v.patrol.v, v.patrol.timer.owner = v, &v.patrol
	v.sweeper.v = v
	v.sweeper.timer.owner = &v.sweeper
	failed := make(chan error, 1)
	v.loop.post(func() {
		if err := v.loop.register(fd, unix.EPOLLIN, door); err != nil {
			failed <- err
		}
	})
	select {
	case <-ctx.Done():
	case err = <-failed:
	}
	cancel()
	closed := make(chan struct{})
	v.loop.post(func() {
		defer close(closed)
		door.close()
	})
	<-closed
	v.admitted.Wait()
	v.settle(nil)
	v.endTallies()
	return err
}

// ClientOptions sets on a socket that is to listen what the connections of clients
// have: keep-alive, no delay of short pieces, and buffers of a fixed size. The kernel
// gives a connection the options that its listener has when it is made. ServeTLS and
// ServeHTTP1 set them as well, which is too late for clients that came before: a
// caller whose clients may, calls this from net.ListenConfig.Control.
func ClientOptions(listener syscall.RawConn) error {
	var err error
	if e := listener.Control(func(own uintptr) {
		fd := int(own)
		err = errors.Join(setNoDelay(fd), setKeepAlive(fd), setClientBuffers(fd))
	}); e != nil {
		return e
	}
	return err
}

// prepare sets the options of a listener that the caller has made.
func prepare(ln net.Listener) (syscall.RawConn, error) {
	tcp, ok := ln.(*net.TCPListener)
	if !ok {
		return nil, fmt.Errorf("%T is not TCP", ln)
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return nil, err
	}
	return raw, ClientOptions(raw)
}

// listening takes the socket out of a listener, which is closed: Go's own poller
// would wake for each connection as well.
func listening(ln net.Listener) (fd int, err error) {
	defer ln.Close()
	raw, err := prepare(ln)
	if err != nil {
		return -1, err
	}
	if e := raw.Control(func(own uintptr) { fd, err = unix.FcntlInt(own, unix.F_DUPFD_CLOEXEC, 0) }); e != nil {
		return -1, e
	}
	return fd, err
}

// A door accepts the connections of a service.
type door struct {
	v     *service
	fd    int
	timer timer
	rest  time.Duration // how long it last could not accept
}

// ready accepts one connection; the loop calls again for the next.
func (d *door) ready(uint32) {
	if d.v.loop.clerk.waiting.Load() > maxUndelivered {
		d.pause(firstRest)
		return
	}
	fd, client, err := acceptNow(d.fd)
	switch {
	case err == nil:
		d.rest = 0
		d.v.admitTLS(fd, account.Record{Time: time.Now(), Kind: d.v.kind, Port: d.v.port, Verdict: firewall.Deny, Client: client})
	case errors.Is(err, syscall.EAGAIN), errors.Is(err, syscall.ECONNABORTED):
	default: // out of descriptors, or of memory: neither ends the service
		d.v.warn("accepting failed, trying again", err)
		d.rest = min(max(2*d.rest, firstRest), longRest)
		d.pause(d.rest)
	}
}

// pause lets connections wait in the kernel.
func (d *door) pause(rest time.Duration) {
	d.open(0)
	d.v.loop.set(&d.timer, d.v.loop.now.Add(rest))
}

func (d *door) expired() { d.open(unix.EPOLLIN) }

func (d *door) open(events uint32) {
	if err := d.v.loop.change(d.fd, events); err != nil {
		d.v.warn("accepting", err)
	}
}

func (d *door) Panicked(err error) { d.v.warn("accepting panicked", err) }

// close accepts no more connections, and cuts those that there are.
func (d *door) close() {
	d.v.loop.unset(&d.timer)
	d.v.loop.unset(&d.v.patrol.timer)
	defer d.v.loop.unset(&d.v.sweeper.timer)
	d.v.loop.forget(d.fd)
	closeNow(d.fd)
	for t := d.v.tunnels.first; t != nil; {
		next := t.next
		func() {
			defer contain.To(t)
			t.endNow()
		}()
		t = next
	}
}
