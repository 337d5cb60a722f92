package tunnel

import (
	"context"
	"net"
	"sync/atomic"
	"testing"

	"sallyport/firewall"
	"sallyport/sniproxy/admission"
	"sallyport/sniproxy/reach"
	"sallyport/sniproxy/testcell"
	"sallyport/sniproxy/testnet"
)

// A server is what the tunnel of a cell needs.
type server struct {
	admission.Cell
	reach.Dialer
}

// A cell is one with a tunnel at work.
type cell struct {
	*testcell.Cell
	server *server
	tls    string // where it listens
}

// newCell starts a cell; change may set fields of the server before.
func newCell(tb testing.TB, policy string, change func(*server)) *cell {
	tb.Helper()
	c := &cell{Cell: testcell.New(tb), server: new(server)}
	c.Configure(&c.server.Cell, &c.server.Dialer, policy)
	if change != nil {
		change(c.server)
	}
	c.tls = c.Serve(func(ctx context.Context, ln net.Listener) error {
		return Serve(ctx, ln, &c.server.Cell, &c.server.Dialer)
	})
	return c
}

func newTunnelCell(t *testing.T, change func(*server)) (*cell, *testnet.Canary) {
	t.Helper()
	c, k := newCell(t, "strict", change), testnet.NewCanary(t)
	c.Origin("127.0.0.1:443", k.Addr)
	return c, k
}

// open makes one tunnel through c and returns both of its ends.
func (c *cell) open(k *testnet.Canary) (client, up *net.TCPConn) {
	c.TB.Helper()
	return c.Open(c.tls, k)
}

// changing makes a cell whose policy the test exchanges.
func changing(t *testing.T, change func(*server)) (c *cell, set func(*firewall.Policy)) {
	t.Helper()
	var current atomic.Pointer[firewall.Policy]
	current.Store(testcell.Policy(t, "hidden"))
	c = newCell(t, "strict", func(s *server) {
		s.Current = current.Load
		if change != nil {
			change(s)
		}
	})
	return c, func(p *firewall.Policy) {
		current.Store(p)
		c.server.PolicyChanged()
	}
}
