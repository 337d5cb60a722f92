package reach

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"sallyport/internal/contain"
	"sallyport/internal/evloop"
	"sallyport/sniproxy/refusal"
	"sallyport/sniproxy/socket"
)

// Bounds on reaching a host. There are more addresses than tries in some
// answers; each try may take what is left, the first ones at most tryTimeout.
const (
	timeout    = 20 * time.Second // to resolve and to dial, in all
	tryTimeout = 10 * time.Second
	maxTries   = 4
	stagger    = 250 * time.Millisecond // RFC 8305, section 5
)

// What a dial waits for on a socket: that it takes bytes, and what the host says
// already, at the edges.
const events = unix.EPOLLIN | unix.EPOLLPRI | unix.EPOLLRDHUP | unix.EPOLLOUT | unix.EPOLLET

// An Owner is whose connection a Dial makes. Dialled is called once, also by Start
// itself, unless the dial is cancelled or abandoned; a host that was not reached has a
// refusal and no descriptor.
type Owner interface {
	Dialled(c Conn, r *refusal.Refusal)
	contain.Holder
}

// A Dial is one effort to reach a host, from the verdict to a connection. It belongs to
// its loop.
type Dial struct {
	loop   *evloop.Loop
	dialer *Dialer
	owner  Owner // nil if nobody is to be told any more
	to     Target
	timer  evloop.Timer

	ctx       context.Context
	cancel    context.CancelFunc // of what is done aside; nil if nothing is
	cancelled bool
	proxy     *Proxy // by way of which the host is reached; nil if by none
	asked     string // what the proxy is asked for

	end   time.Time
	addrs []netip.Addr // to connect to, one after the other
	port  uint16
	tried int
	open  int
	tries [maxTries]try
	next  time.Time      // for one more, if none has connected
	last  netip.AddrPort // that failed
	err   error
}

// A try is one address that is being connected to.
type try struct {
	dial  *Dial
	addr  netip.AddrPort
	fd    int // -1 if it has come to nothing, or won
	until time.Time
}

// Start begins. A name that the resolver does not remember is looked up aside.
func (d *Dial) Start(ctx context.Context, l *evloop.Loop, by *Dialer, to Target, owner Owner) {
	d.ctx, d.loop, d.dialer, d.to, d.owner = ctx, l, by, to, owner
	d.timer.Owner = d
	defer contain.To(d)
	d.end = l.Now.Add(timeout)
	if known, ok := by.Resolver.(Rememberer); ok {
		if addrs, ok, err := known.Remembered(to.Name); ok {
			d.resolved(addrs, err)
			return
		}
	}
	d.aside(func(ctx context.Context) func() {
		addrs, err := by.Resolver.Resolve(ctx, to.Name)
		return func() { d.resolved(addrs, err) }
	})
}

// Reusable reports whether a dial that has ended may be used again: nothing of it is
// under way.
func (d *Dial) Reusable() bool { return d.cancel == nil }

// aside runs f on a goroutine of its own and what that returns on the loop.
func (d *Dial) aside(f func(context.Context) func()) {
	ctx, cancel := context.WithCancel(d.ctx)
	d.cancel = cancel
	end := d.end
	go func() { // d is not used again before the loop has the result
		defer cancel()
		ctx, cancel := context.WithDeadline(ctx, end)
		defer cancel()
		var then func()
		var err error
		defer d.loop.Post(func() {
			defer contain.To(d)
			d.cancel = nil
			if err != nil {
				then = func() { d.finish(Conn{FD: -1}, dialFault(err)) }
			}
			then()
		})
		defer contain.Error(&err)
		then = f(ctx)
	}()
}

// resolved goes on with the answer of the resolver.
func (d *Dial) resolved(addrs []netip.Addr, err error) {
	if d.owner == nil {
		return
	}
	r := resolveFault(err)
	if r == nil {
		r = d.dialer.judge(d.to.Decision, addrs)
	}
	switch {
	case r != nil:
	case d.cancelled:
		r = dialFault(context.Canceled)
	case d.ctx.Err() != nil:
		r = dialFault(d.ctx.Err())
	}
	if r != nil {
		d.finish(Conn{FD: -1}, r)
		return
	}
	d.port = d.to.Port
	if via := d.to.Decision.Via; via != "" {
		p, err := d.dialer.proxy(via)
		if err != nil {
			d.finish(Conn{FD: -1}, dialFault(err))
			return
		}
		d.proxy, d.asked = &p, p.target(d.to, addrs[0])
		addrs, d.port = []netip.Addr{p.Addr.Addr()}, p.Addr.Port()
	}
	if len(addrs) > 1 {
		addrs = interleave(addrs)
	}
	d.addrs = addrs[:min(len(addrs), maxTries)]
	d.tryNext()
}

// interleave orders addresses for dialling: the families in turn, IPv6 first
// (RFC 8305, section 4), each in the order of the answer.
func interleave(addrs []netip.Addr) []netip.Addr {
	var families [2][]netip.Addr
	for _, a := range addrs {
		i := 0
		if a.Is4() {
			i = 1
		}
		families[i] = append(families[i], a)
	}
	ordered := make([]netip.Addr, 0, len(addrs))
	for i := 0; len(ordered) < len(addrs); i++ {
		for _, f := range families {
			if i < len(f) {
				ordered = append(ordered, f[i])
			}
		}
	}
	return ordered
}

// tryNext connects to one more of the addresses that have been judged, and comes
// back for the next one after stagger, or when it has failed (RFC 8305, section 5).
func (d *Dial) tryNext() {
	for d.tried < len(d.addrs) {
		t := &d.tries[d.tried]
		*t = try{dial: d, fd: -1, addr: netip.AddrPortFrom(d.addrs[d.tried], d.port), until: earlier(d.loop.Now.Add(tryTimeout), d.end)}
		d.tried++
		to := t.addr
		if d.dialer.Route != nil {
			to = d.dialer.Route(to)
		}
		if t.fd, d.err = socket.Connect(to); d.err != nil {
			d.last = t.addr
			continue
		}
		if socket.IsConnected(t.fd) {
			d.connected(Conn{FD: t.fd, Addr: t.addr}, t)
			return
		}
		if d.err = d.loop.Register(t.fd, events, t); d.err != nil {
			socket.Close(t.fd)
			t.fd, d.last = -1, t.addr
			continue
		}
		d.open++
		d.next = d.loop.Now.Add(stagger)
		break
	}
	if d.open == 0 {
		d.failed(d.last, d.err)
		return
	}
	d.setTimer()
}

// earlier is the earlier of two times.
func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// setTimer has the loop come back for the next address, or for the first try that is
// late.
func (d *Dial) setTimer() {
	at := d.end
	for i := range d.tried {
		if d.tries[i].fd >= 0 {
			at = earlier(at, d.tries[i].until)
		}
	}
	if d.tried < len(d.addrs) {
		at = earlier(at, d.next)
	}
	d.loop.Set(&d.timer, at)
}

// Ready is called by the loop for a try that is open. The host may have spoken
// already, of which there will be no other word.
func (t *try) Ready(events uint32) (again bool) {
	var err error
	connected := events&unix.EPOLLOUT != 0
	if events&(unix.EPOLLERR|unix.EPOLLHUP) != 0 {
		err, connected = socket.Fault(t.fd), socket.IsConnected(t.fd)
	}
	switch {
	case err != nil:
		t.dial.lose(t, os.NewSyscallError("connect", err))
		t.dial.tryNext()
	case connected:
		t.dial.open--
		t.dial.connected(Conn{FD: t.fd, Addr: t.addr, Registered: true, Events: events}, t)
	}
	return true // what follows a connection is often there already
}

// Panicked is called by the loop.
func (t *try) Panicked(err error) { t.dial.Panicked(err) }

// Panicked ends a dial the handling of which has panicked.
func (d *Dial) Panicked(err error) {
	d.stop()
	d.finish(Conn{FD: -1}, dialFault(err))
}

// lose ends a try that has come to nothing.
func (d *Dial) lose(t *try, err error) {
	d.loop.Forget(t.fd)
	socket.Close(t.fd)
	t.fd = -1
	d.open--
	d.last, d.err = t.addr, socket.DialError(t.addr, err)
}

// Expired is called when the next address is due, or a try is late.
func (d *Dial) Expired() {
	defer contain.To(d)
	for i := range d.tried {
		if t := &d.tries[i]; t.fd >= 0 && !t.until.After(d.loop.Now) {
			d.lose(t, os.ErrDeadlineExceeded)
		}
	}
	if d.open == 0 || d.tried < len(d.addrs) && !d.next.After(d.loop.Now) {
		d.tryNext()
		return
	}
	d.setTimer()
}

// Cancel has the dial come to nothing. Later says that its owner will be told so, once
// what is done aside has ended; otherwise nobody is.
func (d *Dial) Cancel() (later bool) {
	d.cancelled = true
	d.stop()
	if d.cancel != nil {
		return true
	}
	d.owner = nil
	return false
}

// Abandon ends the dial, of which nobody is told any more.
func (d *Dial) Abandon() {
	d.stop()
	d.owner = nil
}

// stop ends what is under way.
func (d *Dial) stop() {
	if d.cancel != nil {
		d.cancel()
	}
	d.loop.Unset(&d.timer)
	for i := range d.tried {
		if t := &d.tries[i]; t.fd >= 0 {
			d.loop.Forget(t.fd)
			socket.Reset(t.fd)
			t.fd = -1
		}
	}
}

// connected goes on with the try that was the first to connect.
func (d *Dial) connected(c Conn, t *try) {
	t.fd = -1
	d.stop()
	switch {
	case d.proxy != nil:
		d.loop.Release(c.FD) // if it is registered
		d.askProxy(c)
	case d.isOwn(c):
		d.loop.Forget(c.FD)
		socket.Reset(c.FD)
		d.finish(Conn{FD: -1, Addr: c.Addr}, addressRefused(c.Addr.Addr().String()+" is the gate's own address"))
	default:
		d.finish(c, nil)
	}
}

// failed ends a dial for which there is no address left.
func (d *Dial) failed(last netip.AddrPort, err error) {
	if d.proxy != nil {
		err = fmt.Errorf("the proxy %s: %w", d.to.Decision.Via, err)
	}
	d.finish(Conn{FD: -1, Addr: last}, dialFault(err))
}

// finish tells the owner, if there still is one. What that does with it is its own
// affair, also if it panics.
func (d *Dial) finish(c Conn, r *refusal.Refusal) {
	owner := d.owner
	d.owner = nil
	d.loop.Unset(&d.timer)
	if owner == nil {
		if c.FD >= 0 {
			d.loop.Forget(c.FD)
			socket.Reset(c.FD)
		}
		return
	}
	defer contain.To(owner)
	owner.Dialled(c, r)
}
