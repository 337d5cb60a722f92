package sniproxy

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"sallyport/firewall"
	"sallyport/firewall/account"
	"sallyport/internal/evloop"
	"sallyport/sniproxy/refusal"
	"sallyport/sniproxy/socket"
)

// How long a listener rests that could not accept: the first time, doubled each
// time after that up to the last, and while records wait to be delivered.
const (
	firstRest = 5 * time.Millisecond
	longRest  = time.Second
)

// serve serves the connections that ln accepts, which it closes, until ctx ends or ln
// cannot be served, and waits for all that it started.
func (v *service) serve(ctx context.Context, ln net.Listener) error {
	defer ln.Close()
	if err := v.check(); err != nil {
		return err
	}
	tcp, ok := ln.(*net.TCPListener)
	if !ok {
		return fmt.Errorf("serving %s connections: %T is not TCP", v.kind, ln)
	}
	fd, err := evloop.Take(tcp)
	if err != nil {
		return fmt.Errorf("accepting %s connections: %w", v.kind, err)
	}
	if v.loop, err = workers.join(); err != nil {
		socket.Close(fd)
		return fmt.Errorf("serving %s connections: %w", v.kind, err)
	}
	defer workers.leave(v.loop)
	var cancel context.CancelFunc
	v.ctx, cancel = context.WithCancel(ctx)
	defer cancel()
	v.prepare()
	a := &acceptor{v: v, fd: fd}
	a.timer.Owner = a
	failed := make(chan error, 1)
	v.loop.Post(func() {
		if err := v.loop.Register(fd, unix.EPOLLIN, a); err != nil {
			failed <- err
		}
	})
	select {
	case <-ctx.Done():
	case err = <-failed:
	}
	cancel()
	closed := make(chan struct{})
	v.loop.Post(func() {
		defer close(closed)
		a.close()
		v.cutTunnels()
	})
	<-closed
	v.cutConns()
	v.admitted.Wait()
	v.sweeps.Wait()
	v.settle(nil)
	v.endTallies()
	return err
}

// An acceptor lets the connections of a service in.
type acceptor struct {
	v     *service
	fd    int
	timer evloop.Timer
	rest  time.Duration // how long it last could not accept
}

// Ready accepts one connection; the loop calls again for the next.
func (a *acceptor) Ready(uint32) (again bool) {
	if a.v.loop.recorder.undelivered.Load() > maxUndelivered {
		a.pause(firstRest)
		return false
	}
	fd, client, err := socket.Accept(a.fd)
	switch {
	case err == nil:
		a.rest = 0
		a.admit(fd, client)
		return true
	case errors.Is(err, syscall.EAGAIN):
		return false
	case errors.Is(err, syscall.ECONNABORTED):
		return true
	default: // out of descriptors, or of memory: neither ends the service
		a.v.warn("accepting failed, trying again", err)
		a.rest = min(max(2*a.rest, firstRest), longRest)
		a.pause(a.rest)
		return false
	}
}

// admit serves a connection that is the cell's own and within the limit, and closes
// any other.
func (a *acceptor) admit(fd int, client netip.AddrPort) {
	v := a.v
	rec := account.Record{Time: time.Now(), Kind: v.kind, Port: v.port, Verdict: firewall.Deny, Client: client}
	v.admitted.Add(1)
	if !v.Prefix.Contains(client.Addr()) {
		socket.Reset(fd)
		v.loop.recorder.add(delivery{v: v, rec: rec, outside: true,
			refusal: &refusal.Refusal{Reason: firewall.ReasonForeignClient, Detail: "the client is outside the cell"}})
		return
	}
	if r := v.enter(); r != nil {
		socket.Close(fd)
		v.loop.recorder.add(delivery{v: v, rec: rec, outside: true, refusal: r})
		return
	}
	v.start(fd, rec)
}

// pause lets connections wait in the kernel.
func (a *acceptor) pause(rest time.Duration) {
	a.listen(0)
	a.v.loop.Set(&a.timer, a.v.loop.Now.Add(rest))
}

// Expired is called when the listener has rested.
func (a *acceptor) Expired() { a.listen(unix.EPOLLIN) }

func (a *acceptor) listen(events uint32) {
	if err := a.v.loop.Change(a.fd, events); err != nil {
		a.v.warn("accepting", err)
	}
}

// Panicked is called by the loop.
func (a *acceptor) Panicked(err error) { a.v.warn("accepting panicked", err) }

// close accepts no more connections.
func (a *acceptor) close() {
	a.v.loop.Unset(&a.timer)
	a.v.loop.Forget(a.fd)
	socket.Close(a.fd)
}
