// Package forward passes on the HTTP/1.1 requests of one cell. Each is read so strictly
// that no other reader can take it for something else, judged by the host that it names,
// and written anew; what goes upstream is never the client's own bytes.
package forward

import (
	"context"
	"net"
	"sync"
	"time"

	"sallyport/firewall"
	"sallyport/firewall/account"
	"sallyport/internal/contain"
	"sallyport/sniproxy/admission"
	"sallyport/sniproxy/reach"
	"sallyport/sniproxy/refusal"
	"sallyport/sniproxy/socket"
)

// Port is for what names are judged and where hosts are dialled, whatever port the
// listener has.
const Port = 80

// Serve forwards the requests of the connections that ln accepts to the host that each
// request names. It ends as admission.Serve does.
func Serve(ctx context.Context, ln net.Listener, c *admission.Cell, d *reach.Dialer, page Page) error {
	return admission.Serve(ctx, ln, c, account.KindHTTP, Port, newService(d, page))
}

func newService(d *reach.Dialer, page Page) *service {
	return &service{dialer: d, page: page, conns: make(map[*net.TCPConn]*conn)}
}

// A service has the connections of one cell.
type service struct {
	*admission.Service
	dialer *reach.Dialer
	page   Page

	bodyIdle time.Duration // 0 is defaultBodyIdle; the tests have no minute

	mu       sync.Mutex             // guards what follows
	conns    map[*net.TCPConn]*conn // clients and upstreams
	sweeping bool
	ended    bool
}

// Join is called once, on the loop.
func (v *service) Join(s *admission.Service) { v.Service = s }

// Start serves a connection that is let in.
func (v *service) Start(fd int, rec account.Record) {
	go func() {
		defer v.Left()
		client, err := socket.Conn(fd)
		if err != nil {
			v.Warn("a connection cannot be served", err)
			v.Finish(&rec, refusal.Unread(err, 0, "request", firewall.ReasonBadRequest))
			return
		}
		h := &conn{v: v, client: client}
		v.track(client, h)
		defer v.drop(client)
		h.serve(v.Ctx, rec)
	}()
}

// track makes c, of h, one that cut closes, and closes it at once if cut was called.
func (v *service) track(c *net.TCPConn, h *conn) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.ended {
		socket.ResetConn(c)
		return
	}
	v.conns[c] = h
	if !v.sweeping {
		v.sweeping = true
		v.Go(v.sweep)
	}
}

// drop closes c and forgets it.
func (v *service) drop(c *net.TCPConn) {
	c.Close()
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.conns, c)
}

// Cut resets every tracked connection, now and from now on.
func (v *service) Cut() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.ended = true
	for c, h := range v.conns {
		h.cut(c)
	}
}

// sweep looks at the connections of a service until there are none.
func (v *service) sweep() {
	tick := time.NewTicker(admission.SweepEvery)
	defer tick.Stop()
	for v.sweepConns() {
		<-tick.C
	}
}

// sweepConns is one look; false means that there is nothing left to look at.
func (v *service) sweepConns() bool {
	defer contain.To(v)
	v.mu.Lock()
	defer v.mu.Unlock()
	held := make(map[*conn]int64)
	for c, h := range v.conns {
		held[h] += socket.HeldBy(c)
	}
	var all []admission.Holding
	for h, n := range held {
		if n > 0 {
			all = append(all, admission.Holding{Bytes: n, Stalled: n == h.held, Cut: h.overfull})
		}
		h.held = n
	}
	v.Settle(all)
	v.sweeping = len(v.conns) > 0
	return v.sweeping
}

// overfull cuts a connection that holds too much. v.mu is held.
func (h *conn) overfull(r *refusal.Refusal) {
	h.over.Store(r)
	for c, owner := range h.v.conns {
		if owner == h {
			h.cut(c)
		}
	}
}

// An exchange is one request and its response, over a connection to the host.
type exchange struct {
	admission.Flow
	client, up *net.TCPConn
}

func newExchange(client *net.TCPConn, f admission.Flow) *exchange {
	e := &exchange{Flow: f, client: client}
	e.Owner = e
	return e
}

// CutByPolicy breaks both connections.
func (e *exchange) CutByPolicy() {
	socket.ResetConn(e.client)
	socket.ResetConn(e.up)
}
