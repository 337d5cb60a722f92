package sniproxy

import (
	"cmp"
	"context"
	"net/netip"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"sallyport/firewall"
	"sallyport/internal/contain"
)

// A Rememberer is a Resolver that may know an answer already; ok is false where
// it must be asked. It must not wait.
type Rememberer interface {
	Remembered(name firewall.Name) (addrs []netip.Addr, ok bool, err error)
}

// A reach is how a tunnel gets to its host: from the verdict to a connection.
type reach struct {
	cancel context.CancelFunc // of what is done aside; nil if nothing is
	end    time.Time
	addrs  []netip.Addr // to connect to, one after the other
	tried  int
	open   int
	tries  [maxDials]attempt
	next   time.Time      // for one more, if none has connected
	failed netip.AddrPort // the last one that did
	err    error
}

// An attempt is one address that is being connected to.
type attempt struct {
	tunnel *tunnel
	addr   netip.AddrPort
	fd     int // -1 if it has come to nothing, or won
	until  time.Time
}

func (a *attempt) ready(events uint32) { a.tunnel.tried(a, events) }
func (a *attempt) Panicked(err error)  { a.tunnel.Panicked(err) }

// reachOut begins to reach the host of a tunnel that is allowed. What may have
// to wait for others is done aside: looking up a name that is not remembered,
// and dialling by way of a proxy.
func (t *tunnel) reachOut() {
	v := t.v
	var over string
	if t.meter, over = v.meter().Reach(t.name, t.decision); over != "" {
		t.refuse(overBudget(over))
		return
	}
	t.stage = stageReach
	t.v.sweepSoon()
	t.reach = t.loop.newReach()
	t.reach.end = t.loop.now.Add(connectTimeout)
	if v.Dial != nil || t.decision.Via != "" {
		t.aside(func(ctx context.Context) func() {
			conn, addr, r := v.connect(ctx, t.name, t.port, t.decision)
			fd := -1
			if r == nil {
				var err error
				if fd, err = descriptor(conn); err != nil {
					r = dialFault(err)
				}
			}
			return func() { t.dialled(fd, addr, r) }
		})
		return
	}
	if known, ok := v.Resolver.(Rememberer); ok {
		if addrs, ok, err := known.Remembered(t.name); ok {
			t.resolved(addrs, err)
			return
		}
	}
	end := t.reach.end
	t.aside(func(ctx context.Context) func() {
		ctx, cancel := context.WithDeadline(ctx, end)
		defer cancel()
		addrs, err := v.Resolver.Resolve(ctx, t.name)
		return func() { t.resolved(addrs, err) }
	})
}

// aside runs f on a goroutine of its own and what that returns on the loop.
func (t *tunnel) aside(f func(context.Context) func()) {
	ctx, cancel := context.WithCancel(t.v.ctx)
	t.reach.cancel = cancel
	go func() { // t is not done with before the loop has the result
		defer cancel()
		var then func()
		var err error
		defer t.loop.post(func() {
			defer contain.To(t)
			if t.reach != nil { // else it has panicked meanwhile
				t.reach.cancel = nil
			}
			if err != nil {
				then = func() { t.dialled(-1, netip.AddrPort{}, dialFault(err)) }
			}
			then()
		})
		defer contain.Error(&err)
		then = f(ctx)
	}()
}

// resolved goes on with the answer of the resolver.
func (t *tunnel) resolved(addrs []netip.Addr, err error) {
	if t.stage != stageReach {
		return
	}
	r := resolveFault(err)
	if r == nil {
		if ok, detail := firewall.JudgeAnswer(t.decision, addrs); !ok {
			r = addressRefused(detail)
		}
	}
	if r == nil {
		r = t.v.own.refuse(addrs)
	}
	if r == nil && t.v.ctx.Err() != nil {
		r = dialFault(t.v.ctx.Err())
	}
	if r = cmp.Or(r, t.over); r != nil {
		t.refuse(r)
		return
	}
	if len(addrs) > 1 {
		addrs = interleave(addrs)
	}
	t.reach.addrs = addrs[:min(len(addrs), maxDials)]
	t.tryNext()
}

// tryNext connects to one more of the addresses that have been judged, and comes
// back for the next one after dialStagger, or when it has failed (RFC 8305,
// section 5).
func (t *tunnel) tryNext() {
	d := t.reach
	for d.tried < len(d.addrs) {
		a := &d.tries[d.tried]
		*a = attempt{tunnel: t, addr: netip.AddrPortFrom(d.addrs[d.tried], t.port), until: earlier(t.loop.now.Add(dialTimeout), d.end)}
		d.tried++
		to := a.addr
		if t.v.route != nil {
			to = t.v.route(to)
		}
		if a.fd, d.err = connectNow(to); d.err != nil {
			d.failed = a.addr
			continue
		}
		if isConnected(a.fd) {
			t.connected(a)
			return
		}
		if d.err = t.loop.register(a.fd, eventsInOut, a); d.err != nil {
			closeNow(a.fd)
			a.fd, d.failed = -1, a.addr
			continue
		}
		d.open++
		d.next = t.loop.now.Add(dialStagger)
		break
	}
	if d.open == 0 {
		t.dialled(-1, d.failed, dialFault(d.err))
		return
	}
	t.setReachTimer()
}

// earlier is the earlier of two times.
func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// setReachTimer has the loop come back for the next address, or for the first
// try that is late.
func (t *tunnel) setReachTimer() {
	d := t.reach
	at := d.end
	for i := range d.tried {
		if d.tries[i].fd >= 0 {
			at = earlier(at, d.tries[i].until)
		}
	}
	if d.tried < len(d.addrs) {
		at = earlier(at, d.next)
	}
	t.loop.set(&t.timer, at)
}

// tried is told of events of an attempt that is open. The host may have spoken
// already, of which there will be no other word.
func (t *tunnel) tried(a *attempt, events uint32) {
	var err error
	connected := events&unix.EPOLLOUT != 0
	if events&(unix.EPOLLERR|unix.EPOLLHUP) != 0 {
		err, connected = faultNow(a.fd), isConnected(a.fd)
	}
	switch {
	case err != nil:
		t.lose(a, os.NewSyscallError("connect", err))
		t.tryNext()
	case connected:
		t.reach.open--
		t.up.out = true // as it is registered
		t.up.note(events)
		t.connected(a)
	}
}

// lose ends an attempt that has come to nothing.
func (t *tunnel) lose(a *attempt, err error) {
	t.loop.forget(a.fd)
	closeNow(a.fd)
	a.fd = -1
	t.reach.open--
	t.reach.failed, t.reach.err = a.addr, dialError(a.addr, err)
}

// late ends the attempts that are, and begins the next.
func (t *tunnel) late() {
	d := t.reach
	for i := range d.tried {
		if a := &d.tries[i]; a.fd >= 0 && !a.until.After(t.loop.now) {
			t.lose(a, os.ErrDeadlineExceeded)
		}
	}
	if d.open == 0 || d.tried < len(d.addrs) && !d.next.After(t.loop.now) {
		t.tryNext()
		return
	}
	t.setReachTimer()
}

// abandon ends what is under way to reach the host.
func (t *tunnel) abandon() {
	d := t.reach
	if d.cancel != nil {
		d.cancel()
	}
	t.loop.unset(&t.timer)
	for i := range d.tried {
		if a := &d.tries[i]; a.fd >= 0 {
			t.loop.forget(a.fd)
			resetNow(a.fd)
			a.fd = -1
		}
	}
}

// connected goes on with the attempt that was the first to connect.
func (t *tunnel) connected(a *attempt) {
	fd := a.fd
	a.fd = -1
	t.abandon()
	if t.isOwn(fd, a.addr.Addr()) {
		t.loop.forget(fd)
		resetNow(fd)
		t.dialled(-1, a.addr, addressRefused(a.addr.Addr().String()+" is the gate's own address"))
		return
	}
	t.dialled(fd, a.addr, nil)
}

// isOwn is isSelf for a connection to addr. Private ones need no look.
func (t *tunnel) isOwn(fd int, addr netip.Addr) bool {
	if public, _ := firewall.JudgeAddr(addr); !public {
		return false
	}
	local, _ := nameNow(unix.SYS_GETSOCKNAME, fd)
	return isSelf(local.Addr(), addr)
}

// dialled goes on with a connection to the host, or with why there is none.
func (t *tunnel) dialled(fd int, addr netip.AddrPort, r *refusal) {
	if t.stage != stageReach {
		if fd >= 0 {
			t.loop.forget(fd)
			resetNow(fd)
		}
		return
	}
	t.upstream, t.rec.Upstream = addr, addr
	t.freeReach()
	if fd >= 0 {
		if err := t.adopt(fd); err != nil && r == nil {
			r = dialFault(err)
		}
	}
	switch {
	case r != nil:
	case t.over != nil:
		r = t.over
	case t.v.ctx.Err() != nil:
		r = dialFault(t.v.ctx.Err())
	case !t.meter.Count(true, len(t.in.b)):
		r = spent(t.meter)
	}
	if r != nil {
		t.refuse(r)
		return
	}
	t.begin()
}

// adopt makes a connection the tunnel's own, which was registered as an attempt
// or not at all.
func (t *tunnel) adopt(fd int) error {
	t.up.tunnel, t.up.fd = t, fd
	if t.up.out {
		t.loop.entries[fd].handler = &t.up
		return nil
	}
	if err := t.loop.register(fd, eventsIn, &t.up); err != nil {
		closeNow(fd)
		t.up.fd = -1
		return err
	}
	return nil
}
