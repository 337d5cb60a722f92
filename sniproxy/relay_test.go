package sniproxy

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"net"
	"net/netip"
	"runtime"
	"syscall"
	"testing"
	"time"

	"sallyport/firewall"
	"sallyport/sniproxy/socket"
	"sallyport/sniproxy/testnet"
)

// open makes one tunnel through c and returns both of its ends.
func (c *cell) open(k *testnet.Canary) (client, up *net.TCPConn) {
	c.tb.Helper()
	raw := testnet.Record(testnet.Message(testnet.SNI("site.example")))
	client = testnet.Dial(c.tb, c.tls)
	testnet.Send(c.tb, client, raw)
	up = k.Next(c.tb)
	testnet.ReadN(c.tb, up, len(raw))
	return client, up
}

func newTunnelCell(t *testing.T, change func(*Server)) (*cell, *testnet.Canary) {
	t.Helper()
	c, k := newCell(t, "strict", change), testnet.NewCanary(t)
	c.origin("127.0.0.1:443", k.Addr)
	return c, k
}

// Each end may finish sending while the other goes on.
func TestTunnelHalfClose(t *testing.T) {
	testnet.NoLeak(t)
	c, k := newTunnelCell(t, nil)
	for i, swap := range []bool{false, true} {
		a, b := c.open(k)
		if swap {
			a, b = b, a
		}
		testnet.Send(t, a, []byte("last words"))
		if err := a.CloseWrite(); err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(b); err != nil || string(got) != "last words" {
			t.Fatalf("got %q, %v", got, err)
		}
		big := make([]byte, 1<<20)
		_, _ = rand.Read(big)
		go func() {
			_, _ = b.Write(big)
			_ = b.CloseWrite()
		}()
		if got, err := io.ReadAll(a); err != nil || string(got) != string(big) {
			t.Fatalf("got %d bytes, %v", len(got), err)
		}
		c.wait(i + 1)
	}
}

// A tunnel outlives silence longer than any deadline of the gate's.
func TestTunnelQuiet(t *testing.T) {
	const timeout = 50 * time.Millisecond
	c, k := newTunnelCell(t, func(s *Server) { s.HelloTimeout = timeout })
	client, up := c.open(k)
	time.Sleep(5 * timeout)
	testnet.Send(t, up, []byte("token"))
	testnet.ReadN(t, client, 5)
	testnet.Send(t, client, []byte("ok"))
	testnet.ReadN(t, up, 2)
}

// An end that breaks breaks the other one, also after it closed its half.
func TestTunnelBreaks(t *testing.T) {
	testnet.NoLeak(t)
	c, k := newTunnelCell(t, nil)
	n := 0
	for _, halfFirst := range []bool{false, true} {
		for _, swap := range []bool{false, true} {
			a, b := c.open(k)
			if swap {
				a, b = b, a
			}
			if halfFirst {
				_ = a.CloseWrite()
				if _, err := io.ReadAll(b); err != nil {
					t.Fatal(err)
				}
			}
			socket.ResetConn(a)
			// b must learn of it although it says nothing itself.
			_, err := b.Read(make([]byte, 1))
			for ; err == nil || errors.Is(err, io.EOF); _, err = b.Write([]byte("x")) {
				time.Sleep(time.Millisecond)
			}
			if !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, syscall.EPIPE) {
				t.Errorf("half first %v, swap %v: %v", halfFirst, swap, err)
			}
			n++
			c.wait(n)
		}
	}
}

// A client that half-closed and then vanished frees a tunnel to a silent upstream.
func TestTunnelFreesAbandoned(t *testing.T) {
	c, k := newTunnelCell(t, nil)
	client, up := c.open(k)
	_ = client.CloseWrite()
	if _, err := io.ReadAll(up); err != nil {
		t.Fatal(err)
	}
	socket.ResetConn(client)
	if r := c.last(1); r.Verdict != firewall.Allow {
		t.Errorf("record %+v", r)
	}
	testnet.Eventually(t, "the connection to be counted out", func() bool { return c.server.open.Load() == 0 })
}

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
	testnet.Eventually(t, "all connections to be admitted", func() bool { return c.server.open.Load() == 3 })

	c.end()
	for _, conn := range []net.Conn{client, up, waiting, idle} {
		if _, err := conn.Read(make([]byte, 1)); err == nil {
			t.Error("a connection survived the lease")
		}
	}
	var allowed, denied int
	for _, r := range c.wait(3) { // without waiting: they came before Serve returned
		switch {
		case r.Verdict == firewall.Deny:
			denied++
		case r.BytesUp > 5 && r.Detail == "cut by the gate":
			allowed++
		}
	}
	if allowed != 1 || denied != 2 {
		t.Errorf("records: %+v", c.wait(3))
	}
	for _, addr := range []string{c.tls, c.http} {
		if conn, err := net.Dial("tcp", addr); err == nil {
			conn.Close()
			t.Errorf("%s still listens", addr)
		}
	}
}

// A resolver or upstream that hangs does not hold up the end of a lease.
//
// probe: L11
// oracle: the server returns though the resolver hangs, and the record says why
func TestServeEndsWhileConnecting(t *testing.T) {
	testnet.NoLeak(t)
	hang := make(chan struct{})
	c := newCell(t, "strict", func(s *Server) {
		s.Resolver = resolverFunc(func(ctx context.Context) ([]netip.Addr, error) {
			close(hang)
			<-ctx.Done()
			return nil, ctx.Err()
		})
	})
	testnet.Send(t, testnet.Dial(t, c.tls), testnet.Record(testnet.Message(testnet.SNI("site.example"))))
	<-hang
	c.end()
	if r := c.last(1); r.Reason != firewall.ReasonResolve {
		t.Errorf("record %+v", r)
	}
}

type resolverFunc func(context.Context) ([]netip.Addr, error)

func (f resolverFunc) Resolve(ctx context.Context, _ firewall.Name) ([]netip.Addr, error) {
	return f(ctx)
}

// TestForeignClient knocks from outside the cell.
//
// probe: X1
// oracle: what the stranger reads, and the record; the other tests' clients are of the
// cell
func TestForeignClient(t *testing.T) {
	c := newCell(t, "strict", func(s *Server) { s.Prefix = netip.MustParsePrefix("172.30.7.0/28") })
	for i, addr := range []string{c.tls, c.http} {
		if got, err := knock(addr); err == nil || len(got) > 0 {
			t.Errorf("got %q, %v; want a reset", got, err)
		}
		if r := c.last(i + 1); r.Reason != firewall.ReasonForeignClient {
			t.Errorf("record %+v", r)
		}
	}
}

// knock connects and reads to the end; the connection may be reset at any time.
func knock(addr string) ([]byte, error) {
	conn, err := net.DialTimeout("tcp", addr, testnet.Patience)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(testnet.Patience))
	return io.ReadAll(conn)
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
		if r := c.last(i + 1); r.Reason != firewall.ReasonLimit {
			t.Errorf("record %+v", r)
		}
	}
	socket.ResetConn(a)
	c.wait(3)
	testnet.Eventually(t, "a place to be free", func() bool { return c.server.open.Load() == 1 })
	c.open(k)
}

// Long unfinished hellos share one bounded account; short ones need none of it.
//
// probe: S20
// oracle: the account of bytes held, and a short hello that reaches the far side
// meanwhile
func TestHelloMemory(t *testing.T) {
	const long = 350_000 // raw bytes held by each
	hello := testnet.CutRecords(testnet.Padded("site.example", 60_000), 1)[:long]
	c, k := newTunnelCell(t, func(s *Server) { s.HelloTimeout = testnet.Patience })
	for range 40 {
		testnet.Send(t, testnet.Dial(t, c.tls), hello)
	}
	testnet.Eventually(t, "a hello to be refused for memory", func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, r := range c.records {
			if r.Reason != firewall.ReasonLimit {
				t.Fatalf("record %+v", r)
			}
		}
		return len(c.records) > 0
	})
	if held := c.server.held.Load(); held > sharedBytes {
		t.Errorf("%d bytes held", held)
	}
	c.open(k) // a short one still passes
	c.end()
	if held := c.server.held.Load(); held != 0 {
		t.Errorf("%d bytes on account at the end", held)
	}
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
	if r := c.last(1); r.Reason != firewall.ReasonNotListed {
		t.Errorf("record %+v", r)
	}
	c = newCell(t, "strict", func(s *Server) { s.Prefix = netip.Prefix{} })
	_, _ = knock(c.tls)
	if r := c.last(1); r.Reason != firewall.ReasonForeignClient {
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
		for c.server.open.Load() < 2 {
			runtime.Gosched()
		}
		c.end()
		for _, r := range c.wait(2) {
			if r.Verdict != firewall.Deny {
				t.Fatalf("record %+v", r)
			}
		}
	}
}
