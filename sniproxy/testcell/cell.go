// Package testcell is a cell at work on loopback, for the tests of its services: what it
// dials on port 443 and 80 of a loopback address is led to the listeners of the test, and
// its records are kept.
package testcell

import (
	"context"
	"errors"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"sallyport/firewall"
	"sallyport/firewall/account"
	"sallyport/firewall/allowlist"
	"sallyport/sniproxy/admission"
	"sallyport/sniproxy/reach"
	"sallyport/sniproxy/socket"
	"sallyport/sniproxy/testnet"
)

// Allowlist admits loopback for the hosts that the tests serve themselves.
const Allowlist = `
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

// Policy is one of Allowlist.
func Policy(tb testing.TB, name string) *firewall.Policy {
	tb.Helper()
	all, err := allowlist.Parse(strings.NewReader(Allowlist), "allowlist.yaml")
	if err != nil {
		tb.Fatal(err)
	}
	p, ok := all.Policy(name)
	if !ok {
		tb.Fatalf("no policy %q", name)
	}
	return p
}

// Via is a policy that reaches other.example by way of a proxy, and site.example as it is.
func Via(tb testing.TB) *firewall.Policy {
	tb.Helper()
	all, err := allowlist.Parse(strings.NewReader("version: 1\npolicies:\n  p:\n    allow:\n"+
		"      - {host: site.example, ports: [80, 443], private: [127.0.0.0/8]}\n"+
		"      - {host: other.example, ports: [80, 443], private: [127.0.0.0/8], via: corp}\n"), "allowlist.yaml")
	if err != nil {
		tb.Fatal(err)
	}
	p, _ := all.Policy("p")
	return p
}

// A Resolver answers from a table and counts.
type Resolver struct {
	mu      sync.Mutex // guards answers
	answers map[string][]netip.Addr
	Asked   atomic.Int64
}

// Set gives a name its addresses.
func (r *Resolver) Set(name string, addrs ...string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answers[name] = nil
	for _, a := range addrs {
		r.answers[name] = append(r.answers[name], netip.MustParseAddr(a))
	}
}

// Resolve is reach.Resolver.
func (r *Resolver) Resolve(_ context.Context, name firewall.Name) ([]netip.Addr, error) {
	r.Asked.Add(1)
	r.mu.Lock()
	defer r.mu.Unlock()
	addrs, ok := r.answers[name.String()]
	if !ok {
		return nil, errors.New("no such name")
	}
	return addrs, nil
}

// A Cell is what a test knows of a cell.
type Cell struct {
	TB       testing.TB
	Resolver *Resolver

	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu      sync.Mutex // guards those below
	records []account.Record
	dialled []netip.AddrPort
	origins map[netip.AddrPort]string
}

// New makes a cell that serves nothing yet. It ends with the test.
func New(tb testing.TB) *Cell {
	c := &Cell{TB: tb, Resolver: &Resolver{answers: map[string][]netip.Addr{}}, origins: map[netip.AddrPort]string{}}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	c.Resolver.Set("site.example", "127.0.0.1")
	c.Resolver.Set("other.example", "127.0.0.1")
	tb.Cleanup(c.End)
	return c
}

// Configure has a service be this cell's, under a policy of Allowlist.
func (c *Cell) Configure(a *admission.Cell, d *reach.Dialer, policy string) {
	c.TB.Helper()
	a.Policy, a.Prefix = Policy(c.TB, policy), netip.MustParsePrefix("127.0.0.0/8")
	a.Record, a.HelloTimeout = c.Record, testnet.Patience
	a.Parked = admission.NewParked(4 << 30) // a machine may let one connection hold more than a cell's part
	d.Resolver, d.Route = c.Resolver, c.Route
}

// Serve starts a service and returns where it listens.
func (c *Cell) Serve(serve func(context.Context, net.Listener) error) (addr string) {
	c.TB.Helper()
	ln := Listen(c.TB)
	c.wg.Go(func() {
		if err := serve(c.ctx, ln); err != nil {
			c.TB.Errorf("serving: %v", err)
		}
	})
	return ln.Addr().String()
}

// End ends all services and waits for them.
func (c *Cell) End() {
	c.cancel()
	c.wg.Wait()
}

// Listen listens as the services require it.
func Listen(tb testing.TB) net.Listener {
	tb.Helper()
	config := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error { return socket.ClientOptions(c) }}
	ln, err := config.Listen(tb.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	return ln
}

// Record keeps a record.
func (c *Cell) Record(r account.Record) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.records = append(c.records, r)
}

// Route notes what is dialled and leads it to its listener, or to nobody.
func (c *Cell) Route(addr netip.AddrPort) netip.AddrPort {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.dialled = append(c.dialled, addr)
	to, ok := c.origins[addr]
	if !ok {
		return netip.MustParseAddrPort("127.0.0.1:1") // where nothing listens
	}
	return netip.MustParseAddrPort(to)
}

// Origin makes addr, such as "127.0.0.1:443", lead to a listener.
func (c *Cell) Origin(addr, listener string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.origins[netip.MustParseAddrPort(addr)] = listener
}

// Dials are the addresses that were dialled.
func (c *Cell) Dials() []netip.AddrPort {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]netip.AddrPort(nil), c.dialled...)
}

// Wait returns the records once there are n of them, and fails if there are more.
func (c *Cell) Wait(n int) []account.Record {
	c.TB.Helper()
	var got []account.Record
	testnet.Eventually(c.TB, "a record", func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		got = append(got[:0], c.records...)
		return len(got) >= n
	})
	if len(got) != n {
		c.TB.Fatalf("%d records, want %d: %+v", len(got), n, got)
	}
	return got
}

// Last returns the n-th record as the last one so far.
func (c *Cell) Last(n int) account.Record {
	c.TB.Helper()
	return c.Wait(n)[n-1]
}

// Records are those so far.
func (c *Cell) Records() []account.Record {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.records)
}

// Take is Records, which are forgotten with the dials.
func (c *Cell) Take() (records []account.Record) {
	c.mu.Lock()
	defer c.mu.Unlock()
	records, c.records, c.dialled = c.records, nil, nil
	return records
}

// Origins are where the addresses lead that have been given to Origin.
func (c *Cell) Origins() map[netip.AddrPort]string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.origins)
}

// Open makes one tunnel through the service at addr and returns both of its ends.
func (c *Cell) Open(addr string, k *testnet.Canary) (client, up *net.TCPConn) {
	c.TB.Helper()
	hello := testnet.HelloFor("site.example")
	client = testnet.Dial(c.TB, addr)
	testnet.Send(c.TB, client, hello)
	up = k.Next(c.TB)
	testnet.ReadN(c.TB, up, len(hello))
	return client, up
}
