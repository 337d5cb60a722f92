package sniproxy

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"sallyport/firewall"
	"sallyport/firewall/account"
	"sallyport/firewall/allowlist"
	"sallyport/sniproxy/socket"
	"sallyport/sniproxy/testnet"
)

// testAllowlist admits loopback for the hosts that the tests serve themselves.
const testAllowlist = `
version: 1
groups:
  web:
    - {host: .site.example, ports: [80, 443], private: [127.0.0.0/8]}
    - {host: other.example, ports: [80, 443], private: [127.0.0.0/8]}
    - {host: tlsonly.example, private: [127.0.0.0/8]}
    - {host: public.example, ports: [80, 443]}
policies:
  strict: {allow: [web]}
  hidden: {allow: [web], ech: pass}
  open: {allow: any}
`

func testPolicy(tb testing.TB, name string) *firewall.Policy {
	tb.Helper()
	all, err := allowlist.Parse(strings.NewReader(testAllowlist), "allowlist.yaml")
	if err != nil {
		tb.Fatal(err)
	}
	p, ok := all.Policy(name)
	if !ok {
		tb.Fatalf("no policy %q", name)
	}
	return p
}

// A fakeResolver answers from a table and counts.
type fakeResolver struct {
	mu      sync.Mutex // guards answers
	answers map[string][]netip.Addr
	asked   atomic.Int64
}

func (r *fakeResolver) set(name string, addrs ...string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answers[name] = nil
	for _, a := range addrs {
		r.answers[name] = append(r.answers[name], netip.MustParseAddr(a))
	}
}

func (r *fakeResolver) Resolve(_ context.Context, name firewall.Name) ([]netip.Addr, error) {
	r.asked.Add(1)
	r.mu.Lock()
	defer r.mu.Unlock()
	addrs, ok := r.answers[name.String()]
	if !ok {
		return nil, errors.New("no such name")
	}
	return addrs, nil
}

// A cell is a Server at work on loopback. What it dials on port 443 and 80 of a
// loopback address is led to the listeners of the test, at the last moment.
type cell struct {
	tb        testing.TB
	server    *Server
	resolver  *fakeResolver
	tls, http string // listening addresses
	end       func() // ends both services and waits for them

	mu      sync.Mutex // guards those below
	records []account.Record
	dialled []netip.AddrPort
	origins map[netip.AddrPort]string
}

// newCell starts a cell; change may set fields of the server before.
func newCell(tb testing.TB, policy string, change func(*Server)) *cell {
	tb.Helper()
	c := &cell{tb: tb, resolver: &fakeResolver{answers: map[string][]netip.Addr{}}, origins: map[netip.AddrPort]string{}}
	c.resolver.set("site.example", "127.0.0.1")
	c.resolver.set("other.example", "127.0.0.1")
	c.server = &Server{
		Policy: testPolicy(tb, policy), Prefix: netip.MustParsePrefix("127.0.0.0/8"), Resolver: c.resolver,
		Route: c.route, Record: c.record, HelloTimeout: testnet.Patience,
		Parked: NewParked(4 << 30), // a machine may let one connection hold more than a cell's part
	}
	if change != nil {
		change(c.server)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	start := func(serve func(context.Context, net.Listener) error) string {
		ln := listen(tb)
		wg.Go(func() {
			if err := serve(ctx, ln); err != nil {
				tb.Errorf("serving: %v", err)
			}
		})
		return ln.Addr().String()
	}
	c.tls, c.http = start(c.server.ServeTLS), start(c.server.ServeHTTP1)
	c.end = func() {
		cancel()
		wg.Wait()
	}
	tb.Cleanup(c.end)
	return c
}

// listen listens as the services want it.
func listen(tb testing.TB) net.Listener {
	tb.Helper()
	config := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error { return socket.ClientOptions(c) }}
	ln, err := config.Listen(tb.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	return ln
}

func (c *cell) record(r account.Record) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.records = append(c.records, r)
}

// route notes what is dialled and leads it to its listener, or to nobody.
func (c *cell) route(addr netip.AddrPort) netip.AddrPort {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.dialled = append(c.dialled, addr)
	to, ok := c.origins[addr]
	if !ok {
		return netip.MustParseAddrPort("127.0.0.1:1") // where nothing listens
	}
	return netip.MustParseAddrPort(to)
}

// origin makes addr, such as "127.0.0.1:443", lead to a listener.
func (c *cell) origin(addr, listener string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.origins[netip.MustParseAddrPort(addr)] = listener
}

func (c *cell) dials() []netip.AddrPort {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]netip.AddrPort(nil), c.dialled...)
}

// wait returns the records once there are n of them, and fails if there are more.
func (c *cell) wait(n int) []account.Record {
	c.tb.Helper()
	var got []account.Record
	testnet.Eventually(c.tb, "a record", func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		got = append(got[:0], c.records...)
		return len(got) >= n
	})
	if len(got) != n {
		c.tb.Fatalf("%d records, want %d: %+v", len(got), n, got)
	}
	return got
}

// last returns the n-th record as the last one so far.
func (c *cell) last(n int) account.Record {
	c.tb.Helper()
	return c.wait(n)[n-1]
}
