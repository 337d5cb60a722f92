package sniproxy

import (
	"context"
	"io"
	"net"
	"net/netip"
	"runtime"
	"testing"

	"sallyport/firewall"
	"sallyport/sniproxy/testnet"
)

// When the lease ends, everything in flight is cut, recorded, and gone.
//
// probe: L11, P5
// oracle: both ends of the connections, which are cut; the records, which are complete;
// the ports, which are closed
func TestServeEnds(t *testing.T) {
	testnet.NoLeak(t)
	c, k := newTunnelCell(t, nil)
	client, up := c.open(k)
	testnet.Send(t, client, []byte("12345"))
	testnet.ReadN(t, up, 5)
	waiting := testnet.Dial(t, c.tls)
	testnet.Send(t, waiting, testnet.Record(testnet.Message(testnet.SNI("site.example")))[:10])
	idle := testnet.Dial(t, c.http)
	testnet.Send(t, idle, []byte("GET / HTTP/1.1\r\n"))
	testnet.Eventually(t, "all connections to be admitted", func() bool { return c.server.Open() == 3 })

	c.End()
	for _, conn := range []net.Conn{client, up, waiting, idle} {
		if _, err := conn.Read(make([]byte, 1)); err == nil {
			t.Error("a connection survived the lease")
		}
	}
	var allowed, denied int
	for _, r := range c.Wait(3) { // without waiting: they came before Serve returned
		switch {
		case r.Verdict == firewall.Deny:
			denied++
		case r.BytesUp > 5 && r.Detail == "cut by the gate":
			allowed++
		}
	}
	if allowed != 1 || denied != 2 {
		t.Errorf("records: %+v", c.Wait(3))
	}
	for _, addr := range []string{c.tls, c.http} {
		if conn, err := net.Dial("tcp", addr); err == nil {
			conn.Close()
			t.Errorf("%s still listens", addr)
		}
	}
}

// TestForeignClient knocks from outside the cell.
//
// probe: X1
// oracle: what the stranger reads, and the record; the other tests' clients are of the
// cell
func TestForeignClient(t *testing.T) {
	c := newCell(t, "strict", func(s *Server) { s.Prefix = netip.MustParsePrefix("172.30.7.0/28") })
	for i, addr := range []string{c.tls, c.http} {
		if got, err := testnet.Knock(addr); err == nil || len(got) > 0 {
			t.Errorf("got %q, %v; want a reset", got, err)
		}
		if r := c.Last(i + 1); r.Reason != firewall.ReasonForeignClient {
			t.Errorf("record %+v", r)
		}
	}
}

// The bound on connections is one for both services, and frees with them.
//
// probe: S20
// oracle: the connections over the cap, which are closed; the record; a place that is
// taken again
func TestConnectionLimit(t *testing.T) {
	c, k := newTunnelCell(t, func(s *Server) { s.MaxConns = 2 })
	a, _ := c.open(k)
	c.open(k)
	for i, addr := range []string{c.tls, c.http} {
		if got, _ := io.ReadAll(testnet.Dial(t, addr)); len(got) > 0 {
			t.Errorf("got %q", got)
		}
		if r := c.Last(i + 1); r.Reason != firewall.ReasonLimit {
			t.Errorf("record %+v", r)
		}
	}
	testnet.Reset(a)
	c.Wait(3)
	testnet.Eventually(t, "a place to be free", func() bool { return c.server.Open() == 1 })
	c.open(k)
}

// A Server that lacks what it needs serves nothing; one without a policy or a
// prefix refuses everything.
//
// probe: P4
// oracle: listeners that are closed, and the records of refusals
func TestZeroServer(t *testing.T) {
	ln := testnet.Listen(t)
	if err := new(Server).ServeTLS(context.Background(), ln); err == nil {
		t.Error("a zero Server serves TLS")
	}
	if err := new(Server).ServeHTTP1(context.Background(), testnet.Listen(t)); err == nil {
		t.Error("a zero Server serves HTTP")
	}
	if _, err := net.Dial("tcp", ln.Addr().String()); err == nil {
		t.Error("its listener is open")
	}
	c := newCell(t, "strict", func(s *Server) { s.Policy = nil })
	testnet.Send(t, testnet.Dial(t, c.tls), testnet.Record(testnet.Message(testnet.SNI("site.example"))))
	if r := c.Last(1); r.Reason != firewall.ReasonNotListed {
		t.Errorf("record %+v", r)
	}
	c = newCell(t, "strict", func(s *Server) { s.Prefix = netip.Prefix{} })
	_, _ = testnet.Knock(c.tls)
	if r := c.Last(1); r.Reason != firewall.ReasonForeignClient {
		t.Errorf("record %+v", r)
	}
}

// A connection that is admitted as the lease ends has its record, too, however far
// its handler has come.
//
// probe: L11
// oracle: the records, one of each connection that was let in
func TestServeEndsAtOnce(t *testing.T) {
	for range 200 {
		c := newCell(t, "strict", nil)
		for _, addr := range []string{c.tls, c.http} {
			conn, err := net.Dial("tcp", addr)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
		}
		for c.server.Open() < 2 {
			runtime.Gosched()
		}
		c.End()
		for _, r := range c.Wait(2) {
			if r.Verdict != firewall.Deny {
				t.Fatalf("record %+v", r)
			}
		}
	}
}
