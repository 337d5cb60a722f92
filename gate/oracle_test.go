package gate

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"

	"sallyport/firewall"
	"sallyport/firewall/account"
	"sallyport/sniproxy/resolve"
)

// A farSide is what stands beyond a gate: a DNS server that notes its questions
// and an upstream that notes the addresses that were dialled.
type farSide struct {
	mu      sync.Mutex // guards those below
	answers map[string]netip.Addr
	asked   []string
	dialled []string
}

// beyond starts a gate with an allowlist and a cache, whose far side it returns.
func beyond(t *testing.T, text string, answers map[string]netip.Addr) (*testGate, *farSide) {
	t.Helper()
	far := &farSide{answers: answers}
	pc, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := &dns.Server{PacketConn: pc, Handler: dns.HandlerFunc(far.answer)}
	go srv.ActivateAndServe()
	t.Cleanup(func() { pc.Close() })
	return start(t, upstream(t), func(d *Daemon) {
		d.Allowlist = parsePolicies(t, text)
		d.Resolver = &resolve.Client{Servers: []resolve.Server{
			resolve.UDPServer(netip.MustParseAddrPort(pc.LocalAddr().String()))}}
		d.Cache = CacheSize{Names: 8, Least: time.Minute, Most: time.Minute}
		route := d.route
		d.route = func(addr netip.AddrPort) netip.AddrPort {
			far.mu.Lock()
			far.dialled = append(far.dialled, addr.String())
			far.mu.Unlock()
			return route(addr)
		}
	}), far
}

func (f *farSide) answer(w dns.ResponseWriter, q *dns.Msg) {
	f.mu.Lock()
	defer f.mu.Unlock()
	name, qtype := q.Question[0].Name, q.Question[0].Qtype
	f.asked = append(f.asked, name)
	m := new(dns.Msg).SetReply(q)
	header := dns.RR_Header{Name: name, Rrtype: qtype, Class: dns.ClassINET}
	switch addr := f.answers[strings.TrimSuffix(name, ".")]; {
	case addr.Is4() && qtype == dns.TypeA:
		m.Answer = append(m.Answer, &dns.A{Hdr: header, A: addr.AsSlice()})
	case addr.Is6() && qtype == dns.TypeAAAA:
		m.Answer = append(m.Answer, &dns.AAAA{Hdr: header, AAAA: addr.AsSlice()})
	}
	_ = w.WriteMsg(m)
}

// seen returns what came to the far side since the last call: names and addresses.
func (f *farSide) seen() (asked, dialled []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	asked, dialled = slices.Compact(slices.Sorted(slices.Values(f.asked))), f.dialled
	f.asked, f.dialled = nil, nil
	return asked, dialled
}

// Whatever a run asks the gate for, nothing of it reaches a resolver or a server
// before it is allowed; a query for an allowed name reaches none at all.
//
// probe: D1, D4, D5, H1, R11, S11
// oracle: the questions that a DNS server on the far side has noted, and the addresses
// that were dialled; both note the control. The receipt has every refusal
func TestNothingLeavesUnjudged(t *testing.T) {
	g, far := beyond(t, testAllowlist, map[string]netip.Addr{"www.site.example": netip.MustParseAddr("10.0.0.1")})
	g.lease(t, "c1", cellLease(1, "run-1", "strict"))

	g.wantNXDOMAIN(t, 1, "c2VjcmV0LXRva2Vu.evil.example.")
	g.wantNXDOMAIN(t, 1, "other.example.")
	g.wantResolved(t, 1, "c2VjcmV0LXRva2Vu.site.example.")
	for _, qtype := range []uint16{dns.TypeAAAA, dns.TypeTXT, dns.TypeNULL, dns.TypeMX, dns.TypeCNAME, dns.TypeANY, dns.TypeHTTPS} {
		c := &dns.Conn{Conn: g.client(t, "udp4", 1, g.daemon.ports.dns)}
		if err := c.WriteMsg(new(dns.Msg).SetQuestion("c2VjcmV0LXRva2Vu.site.example.", qtype)); err != nil {
			t.Fatal(err)
		}
		if m, err := c.ReadMsg(); err != nil || m.Rcode != dns.RcodeSuccess || len(m.Answer) != 0 {
			t.Errorf("type %d: %v, %v", qtype, m, err)
		}
	}
	for _, host := range []string{"secret.evil.example", "other.example", "www.site.example.evil.example", "secret_.site.example", "site"} {
		if _, err := g.tunnel(t, 1, host); err == nil {
			t.Errorf("a tunnel to %s", host)
		}
		if status := g.get(t, 1, host); status != http.StatusForbidden && status != http.StatusBadRequest {
			t.Errorf("http to %s: status %d", host, status)
		}
	}
	if asked, dialled := far.seen(); len(asked) != 0 || len(dialled) != 0 {
		t.Errorf("the far side was asked for %q and dialled at %q", asked, dialled)
	}

	if _, err := g.tunnel(t, 1, "www.site.example"); err != nil {
		t.Errorf("control: %v", err)
	}
	asked, dialled := far.seen()
	if fmt.Sprint(asked) != "[www.site.example.]" || fmt.Sprint(dialled) != "[10.0.0.1:443]" {
		t.Errorf("control: the far side was asked for %q and dialled at %q", asked, dialled)
	}
	r := g.release(t, "c1").Receipt
	for _, kind := range []account.Kind{account.KindTLS, account.KindHTTP} {
		if n := count(r, kind, "secret.evil.example", firewall.ReasonNotListed); n != 1 {
			t.Errorf("%d refusals of kind %s in the receipt", n, kind)
		}
	}
}

// get makes a request to host by the gate of cell n and returns the status.
func (g *testGate) get(t *testing.T, n byte, host string) int {
	t.Helper()
	c := g.client(t, "tcp4", n, g.daemon.ports.http)
	if _, err := fmt.Fprintf(c, "GET / HTTP/1.1\r\nHost: %s\r\n\r\n", host); err != nil {
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	return resp.StatusCode
}

// Whether a name was looked up lately is nobody's business but the run's that did:
// each lease has a cache of its own, which the next one in its cell does not get.
//
// probe: X13, L4
// oracle: the questions that a DNS server on the far side has noted, which are fewer
// where a run asks twice itself
func TestCacheIsOfOneLease(t *testing.T) {
	g, far := beyond(t, testAllowlist, map[string]netip.Addr{"www.site.example": netip.MustParseAddr("10.0.0.1")})
	tunnel := func(n byte, asks bool) {
		t.Helper()
		if _, err := g.tunnel(t, n, "www.site.example"); err != nil {
			t.Fatal(err)
		}
		if asked, _ := far.seen(); (len(asked) > 0) != asks {
			t.Errorf("cell %d: the far side was asked for %q", n, asked)
		}
	}
	g.lease(t, "c1", cellLease(1, "run-1", "strict"))
	g.lease(t, "c2", cellLease(2, "run-2", "strict"))
	tunnel(1, true)
	tunnel(1, false) // the control: there is a cache
	tunnel(2, true)
	g.release(t, "c1")
	g.lease(t, "c1", cellLease(1, "run-3", "strict"))
	tunnel(1, true)
	tunnel(2, false)
}

// A name may resolve to the gate's own listeners, to another cell or to the host. It
// is not dialled there, not even where the allowlist admits the range that holds the
// cells, those included that nobody uses; the rest of that range stays admitted.
//
// probe: R1, R7, N7
// oracle: the addresses that were dialled, of which the control is one; the receipt
func TestNamesOfOurOwnAddresses(t *testing.T) {
	answers := map[string]netip.Addr{"control.cells.example": netip.MustParseAddr("127.99.0.1")}
	want := map[string]bool{}
	refuse := func(host string, addr netip.Addr) {
		answers[host] = addr
		want[host] = true
	}
	for name, addr := range map[string]string{
		"own-gate": "127.77.1.2", "own-sandbox": "127.77.1.3", "own-network": "127.77.1.0", "other-gate": "127.77.2.2",
		"other-sandbox": "127.77.2.3", "mapped": "::ffff:127.77.1.2", "idle-gate": "127.77.3.2", "idle-sandbox": "127.77.200.3",
	} {
		refuse(name+".cells.example", netip.MustParseAddr(addr))
	}
	for i, addr := range append(hostAddresses(t), netip.MustParseAddr("127.0.0.1"), netip.IPv6Loopback(), netip.IPv4Unspecified()) {
		refuse(fmt.Sprintf("host-%d.plain.example", i), addr)
	}
	g, far := beyond(t, "version: 1\npolicies:\n  strict:\n    allow:\n"+
		"      - {host: .cells.example, ports: [80, 443], private: [127.0.0.0/8]}\n      - {host: .plain.example, ports: [80, 443]}\n", answers)
	g.lease(t, "c1", cellLease(1, "run-1", "strict"))
	g.lease(t, "c2", cellLease(2, "run-2", "strict"))
	for host := range want {
		if _, err := g.tunnel(t, 1, host); err == nil {
			t.Errorf("a tunnel to %s, which is at %s", host, answers[host])
		}
		if status := g.get(t, 1, host); status != http.StatusForbidden {
			t.Errorf("http to %s, which is at %s: status %d", host, answers[host], status)
		}
	}
	if _, dialled := far.seen(); len(dialled) != 0 {
		t.Errorf("dialled %q", dialled)
	}
	if _, err := g.tunnel(t, 1, "control.cells.example"); err != nil {
		t.Errorf("control: %v", err)
	}
	if _, dialled := far.seen(); fmt.Sprint(dialled) != "[127.99.0.1:443]" {
		t.Errorf("control: dialled %q", dialled)
	}
	r := g.release(t, "c1").Receipt
	for host := range want {
		for _, kind := range []account.Kind{account.KindTLS, account.KindHTTP} {
			if n := count(r, kind, host, firewall.ReasonAddress); n != 1 {
				t.Errorf("%d refusals of %s for its address, kind %s, want 1", n, host, kind)
			}
		}
	}
}

// hostAddresses are this machine's addresses but for those that are public, which a
// connection of its own would have to show to be its own.
func hostAddresses(t *testing.T) (all []netip.Addr) {
	t.Helper()
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range addrs {
		if n, ok := a.(*net.IPNet); ok {
			addr, _ := netip.AddrFromSlice(n.IP)
			if public, _ := firewall.JudgeAddr(addr.Unmap()); !public {
				all = append(all, addr.Unmap())
			}
		}
	}
	return all
}
