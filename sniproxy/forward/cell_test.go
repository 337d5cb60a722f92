package forward

import (
	"context"
	"net"
	"net/http"
	"testing"
	"time"

	"sallyport/firewall/account"
	"sallyport/sniproxy/admission"
	"sallyport/sniproxy/reach"
	"sallyport/sniproxy/testcell"
)

// A server is what the forwarder of a cell needs.
type server struct {
	admission.Cell
	reach.Dialer
	page     Page
	bodyIdle time.Duration
}

// A cell is one with a forwarder at work.
type cell struct {
	*testcell.Cell
	server *server
	http   string // where it listens
}

// newCell starts a cell; change may set fields of the server before.
func newCell(tb testing.TB, policy string, change func(*server)) *cell {
	tb.Helper()
	c := &cell{Cell: testcell.New(tb), server: new(server)}
	c.Configure(&c.server.Cell, &c.server.Dialer, policy)
	if change != nil {
		change(c.server)
	}
	c.http = c.Serve(func(ctx context.Context, ln net.Listener) error {
		v := newService(&c.server.Dialer, c.server.page)
		v.bodyIdle = c.server.bodyIdle
		return admission.Serve(ctx, ln, &c.server.Cell, account.KindHTTP, Port, v)
	})
	return c
}

func (c *cell) client() *http.Client { return testcell.Client(c.TB, c.http) }
