package admission

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

// Serve serves the connections of a cell that ln accepts, until ctx ends or ln cannot be
// served. It closes ln and waits for all that it started.
func Serve(ctx context.Context, ln net.Listener, c *Cell, kind account.Kind, port uint16, h Handler) error {
	defer ln.Close()
	tcp, ok := ln.(*net.TCPListener)
	if !ok {
		return fmt.Errorf("serving %s connections: %T is not TCP", kind, ln)
	}
	fd, err := evloop.Take(tcp)
	if err != nil {
		return fmt.Errorf("accepting %s connections: %w", kind, err)
	}
	v := &Service{Cell: c, Kind: kind, Port: port, handler: h}
	if v.Worker, err = workers.join(); err != nil {
		socket.Close(fd)
		return fmt.Errorf("serving %s connections: %w", kind, err)
	}
	defer workers.leave(v.Worker)
	var cancel context.CancelFunc
	v.Ctx, cancel = context.WithCancel(ctx)
	defer cancel()
	a := &acceptor{v: v, fd: fd}
	a.timer.Owner = a
	failed := make(chan error, 1)
	v.Worker.Post(func() {
		h.Join(v)
		if err := v.Worker.Register(fd, unix.EPOLLIN, a); err != nil {
			failed <- err
		}
	})
	select {
	case <-ctx.Done():
	case err = <-failed:
	}
	cancel()
	closed := make(chan struct{})
	v.Worker.Post(func() {
		defer close(closed)
		a.close()
		h.Cut()
	})
	<-closed
	v.admitted.Wait()
	v.Settle(nil)
	v.endTallies()
	return err
}

// An acceptor lets the connections of a service in.
type acceptor struct {
	v     *Service
	fd    int
	timer evloop.Timer
	rest  time.Duration // how long it last could not accept
}

// Ready accepts one connection; the loop calls again for the next.
func (a *acceptor) Ready(uint32) (again bool) {
	if a.v.Worker.Recorder.undelivered.Load() > maxUndelivered {
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
		a.v.Warn("accepting failed, trying again", err)
		a.rest = min(max(2*a.rest, firstRest), longRest)
		a.pause(a.rest)
		return false
	}
}

// admit serves a connection that is the cell's own and within the limit, and closes
// any other.
func (a *acceptor) admit(fd int, client netip.AddrPort) {
	v := a.v
	rec := account.Record{Time: time.Now(), Kind: v.Kind, Port: v.Port, Verdict: firewall.Deny, Client: client}
	v.admitted.Add(1)
	if !v.Prefix.Contains(client.Addr()) {
		socket.Reset(fd)
		v.Worker.Recorder.Add(Delivery{Service: v, Record: rec, outside: true,
			Refusal: &refusal.Refusal{Reason: firewall.ReasonForeignClient, Detail: "the client is outside the cell"}})
		return
	}
	if r := v.enter(); r != nil {
		socket.Close(fd)
		v.Worker.Recorder.Add(Delivery{Service: v, Record: rec, outside: true, Refusal: r})
		return
	}
	v.handler.Start(fd, rec)
}

// pause lets connections wait in the kernel.
func (a *acceptor) pause(rest time.Duration) {
	a.listen(0)
	a.v.Worker.Set(&a.timer, a.v.Worker.Now.Add(rest))
}

// Expired is called when the listener has rested.
func (a *acceptor) Expired() { a.listen(unix.EPOLLIN) }

func (a *acceptor) listen(events uint32) {
	if err := a.v.Worker.Change(a.fd, events); err != nil {
		a.v.Warn("accepting", err)
	}
}

// Panicked is called by the loop.
func (a *acceptor) Panicked(err error) { a.v.Warn("accepting panicked", err) }

// close accepts no more connections.
func (a *acceptor) close() {
	a.v.Worker.Unset(&a.timer)
	a.v.Worker.Forget(a.fd)
	socket.Close(a.fd)
}
