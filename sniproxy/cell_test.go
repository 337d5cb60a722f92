package sniproxy

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"testing"

	"sallyport/firewall"
	"sallyport/sniproxy/testcell"
	"sallyport/sniproxy/testnet"
)

// A cell is one with a Server at work.
type cell struct {
	*testcell.Cell
	server    *Server
	tls, http string // where it listens
}

// newCell starts a cell; change may set fields of the server before.
func newCell(tb testing.TB, policy string, change func(*Server)) *cell {
	tb.Helper()
	c := &cell{Cell: testcell.New(tb), server: new(Server)}
	c.Configure(&c.server.Cell, &c.server.Dialer, policy)
	if change != nil {
		change(c.server)
	}
	c.tls, c.http = c.Serve(c.server.ServeTLS), c.Serve(c.server.ServeHTTP1)
	return c
}

func newTunnelCell(t *testing.T, change func(*Server)) (*cell, *testnet.Canary) {
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

func (c *cell) client() *http.Client { return testcell.Client(c.TB, c.http) }

type resolverFunc func(context.Context) ([]netip.Addr, error)

func (f resolverFunc) Resolve(ctx context.Context, _ firewall.Name) ([]netip.Addr, error) {
	return f(ctx)
}
