// Package reach gets from a verdict to a connection: it looks the name up, has every
// address of the answer judged, refuses the gate's own ones, and connects to the very
// address that was judged, by way of the company's proxy where the policy says so.
//
// A Dialer does so for one cell. All of it happens on an event loop, but for what may
// have to wait for others: a name that is not remembered, and a proxy's answer.
package reach

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"

	"sallyport/firewall"
	"sallyport/internal/evloop"
	"sallyport/sniproxy/refusal"
	"sallyport/sniproxy/resolve"
	"sallyport/sniproxy/socket"
)

// A Resolver finds the addresses of a fully qualified name. An error, also a
// partial one, means that the name is not dialled. An answer that leads to a
// name which must not be followed is a *resolve.RefusedError.
type Resolver interface {
	Resolve(ctx context.Context, name firewall.Name) ([]netip.Addr, error)
}

// A Rememberer is a Resolver that may know an answer already; ok is false where
// it must be asked. It must not wait.
type Rememberer interface {
	Remembered(name firewall.Name) (addrs []netip.Addr, ok bool, err error)
}

// A Dialer reaches hosts for the connections of one cell.
type Dialer struct {
	Resolver Resolver // required
	// Proxy finds the company's proxy of a name; if nil, there is none.
	Proxy func(name string) (Proxy, bool)
	// Route, if not nil, has a dial go elsewhere, at the last moment. It is for tests.
	Route func(netip.AddrPort) netip.AddrPort

	own ownAddresses
}

// A Target is a host that a policy allows.
type Target struct {
	Name     firewall.Name
	Port     uint16
	Decision firewall.Decision
}

// A Conn is a connection to a host, or where one was tried for last.
type Conn struct {
	FD   int // -1 for none
	Addr netip.AddrPort
	// Registered says that the loop knows the descriptor, as one that is waited for to take
	// bytes as well; Events are what it has said.
	Registered bool
	Events     uint32
}

// judge refuses an answer that leads where the decision must not: it is judged whole.
func (dl *Dialer) judge(d firewall.Decision, addrs []netip.Addr) *refusal.Refusal {
	if ok, detail := firewall.JudgeAnswer(d, addrs); !ok {
		return addressRefused(detail)
	}
	return dl.own.refuse(addrs)
}

// Dial reaches a host for a caller that is not on the loop.
func (dl *Dialer) Dial(ctx context.Context, l *evloop.Loop, to Target) (*net.TCPConn, netip.AddrPort, *refusal.Refusal) {
	w := &waiter{loop: l, done: make(chan struct{})}
	l.Post(func() { w.dial.Start(ctx, l, dl, to, w) })
	stop := context.AfterFunc(ctx, func() { l.Post(w.cancel) })
	defer stop()
	<-w.done
	if w.refused != nil {
		return nil, w.conn.Addr, w.refused
	}
	conn, err := socket.Conn(w.conn.FD)
	if err != nil {
		return nil, w.conn.Addr, dialFault(err)
	}
	return conn, w.conn.Addr, nil
}

// A waiter waits for its dial.
type waiter struct {
	loop *evloop.Loop
	dial Dial // the loop's
	done chan struct{}

	// Set before done is closed, by the loop.
	conn    Conn
	refused *refusal.Refusal
	over    bool
}

// Dialled is called by the dial.
func (w *waiter) Dialled(c Conn, r *refusal.Refusal) {
	if c.Registered {
		w.loop.Release(c.FD)
	}
	w.conn, w.refused, w.over = c, r, true
	close(w.done)
}

// Panicked is called by the dial; there is nothing in Dialled that could.
func (w *waiter) Panicked(error) {}

func (w *waiter) cancel() {
	if !w.over && !w.dial.Cancel() {
		w.Dialled(Conn{FD: -1}, Cut())
	}
}

// Cut is the refusal of a host that is not reached because the gate has ended the cell.
func Cut() *refusal.Refusal { return dialFault(errors.New("the gate has cut the connection")) }

// Refused is the refusal of a host that could not be reached, and why.
func Refused(err error) *refusal.Refusal { return dialFault(err) }

func dialFault(err error) *refusal.Refusal {
	if r := refusal.Fault(err); r != nil {
		return r
	}
	return &refusal.Refusal{Reason: firewall.ReasonDial, Detail: firewall.Escape(err.Error(), 200), Alert: refusal.InternalError, Status: http.StatusBadGateway}
}

func resolveFault(err error) *refusal.Refusal {
	var refused *resolve.RefusedError
	switch {
	case err == nil:
		return nil
	case refusal.Fault(err) != nil:
		return refusal.Fault(err)
	case errors.As(err, &refused):
		return addressRefused(refused.Detail)
	default:
		return &refusal.Refusal{Reason: firewall.ReasonResolve, Detail: firewall.Escape(err.Error(), 200), Alert: refusal.InternalError, Status: http.StatusBadGateway}
	}
}

func addressRefused(detail string) *refusal.Refusal {
	return &refusal.Refusal{Reason: firewall.ReasonAddress, Detail: detail, Alert: refusal.AccessDenied, Status: http.StatusForbidden}
}

func (dl *Dialer) proxy(name string) (Proxy, error) {
	if dl.Proxy != nil {
		if p, ok := dl.Proxy(name); ok {
			return p, nil
		}
	}
	return Proxy{}, fmt.Errorf("the gate has no proxy called %s", name)
}
