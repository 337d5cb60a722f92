package dnsgate

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"

	"sallyport/firewall"
	"sallyport/firewall/account"
	"sallyport/firewall/allowlist"
	"sallyport/internal/output"
)

const testAllowlist = `version: 1
groups:
  site: [allowed.example, .tree.example]
policies:
  strict: {allow: [site]}
  open:   {allow: any}
`

// answerAddr stands for the gate's address in the cell.
var answerAddr = netip.MustParseAddr("172.30.0.2")

// policy returns a policy of the test's allowlist.
func policy(t testing.TB, name string) *firewall.Policy {
	t.Helper()
	ps, err := allowlist.Parse(strings.NewReader(testAllowlist), "allowlist.yaml")
	if err != nil {
		t.Fatal(err)
	}
	p, ok := ps.Policy(name)
	if !ok {
		t.Fatalf("no policy %q", name)
	}
	return p
}

// A gate is a running Server with what it recorded.
type gate struct {
	addr string
	stop func() error // ends Serve and waits for it

	mu      sync.Mutex // guards records
	records []account.Record
}

// serve runs s, completed for the loopback interface, until the test ends.
func serve(t *testing.T, s Server) *gate {
	t.Helper()
	g := &gate{}
	s.Answer = answerAddr
	if !s.Prefix.IsValid() {
		s.Prefix = netip.MustParsePrefix("127.0.0.1/32")
	}
	s.Record = func(r account.Record) {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.records = append(g.records, r)
	}
	var log output.Buffer
	if s.Log == nil {
		s.Log = slog.New(slog.NewTextHandler(&log, nil))
	}

	ln, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g.addr = ln.Addr().String()
	pc, err := net.ListenUDP("udp4", net.UDPAddrFromAddrPort(netip.MustParseAddrPort(g.addr)))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx, pc, ln) }()
	g.stop = sync.OnceValue(func() error {
		cancel()
		select {
		case err := <-done:
			return err
		case <-time.After(10 * time.Second):
			return errors.New("Serve did not return")
		}
	})
	t.Cleanup(func() {
		if err := g.stop(); err != nil {
			t.Errorf("Serve: %v", err)
		}
		if log.String() != "" {
			t.Errorf("the gate logged a fault of its own:\n%s", log.String())
		}
	})
	return g
}

// take returns the records made so far and forgets them.
func (g *gate) take() []account.Record {
	g.mu.Lock()
	defer g.mu.Unlock()
	r := g.records
	g.records = nil
	return r
}

// waitFor waits until a record satisfies ok.
func (g *gate) waitFor(t *testing.T, what string, ok func(account.Record) bool) account.Record {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		g.mu.Lock()
		for _, r := range g.records {
			if ok(r) {
				g.mu.Unlock()
				return r
			}
		}
		g.mu.Unlock()
	}
	t.Fatalf("no record of %s; have %+v", what, g.take())
	return account.Record{}
}

// dial connects a client to the gate.
func (g *gate) dial(t *testing.T, network string) net.Conn {
	t.Helper()
	c, err := net.Dial(network, g.addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(10 * time.Second))
	return c
}

// raw sends one UDP message and returns the parsed reply and its length.
func (g *gate) raw(t *testing.T, msg []byte) (*dns.Msg, int) {
	t.Helper()
	c := g.dial(t, "udp4")
	defer c.Close()
	if _, err := c.Write(msg); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 65535)
	n, err := c.Read(buf)
	if err != nil {
		t.Fatalf("no reply: %v", err)
	}
	m := new(dns.Msg)
	if err := m.Unpack(buf[:n]); err != nil {
		t.Fatalf("the reply does not parse: %v", err)
	}
	return m, n
}

// ask sends m over UDP.
func (g *gate) ask(t *testing.T, m *dns.Msg) (*dns.Msg, int) {
	t.Helper()
	return g.raw(t, pack(t, m))
}

func pack(t testing.TB, m *dns.Msg) []byte {
	t.Helper()
	b, err := m.Pack()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// alive is the positive control of every refusal: an allowed name resolves.
func (g *gate) alive(t *testing.T) {
	t.Helper()
	m, _ := g.ask(t, question("allowed.example.", dns.TypeA))
	wantA(t, m, "allowed.example.")
}

func question(name string, qtype uint16) *dns.Msg {
	return new(dns.Msg).SetQuestion(name, qtype)
}

func wantA(t *testing.T, m *dns.Msg, name string) {
	t.Helper()
	if m.Rcode != dns.RcodeSuccess || len(m.Answer) != 1 {
		t.Fatalf("want one A of %s, got\n%v", name, m)
	}
	a, ok := m.Answer[0].(*dns.A)
	if !ok || a.A.String() != answerAddr.String() || a.Hdr.Name != name || a.Hdr.Ttl != DefaultTTL {
		t.Errorf("answer %v, want %s %d A %v", m.Answer[0], name, DefaultTTL, answerAddr)
	}
}

// wantEmpty wants a reply without an answer, with a SOA if it is a negative one.
func wantEmpty(t *testing.T, m *dns.Msg, rcode int) {
	t.Helper()
	if m.Rcode != rcode || len(m.Answer) != 0 {
		t.Fatalf("want an empty %s, got\n%v", dns.RcodeToString[rcode], m)
	}
	if rcode != dns.RcodeSuccess && rcode != dns.RcodeNameError {
		if len(m.Ns) != 0 {
			t.Errorf("authority in a %s: %v", dns.RcodeToString[rcode], m.Ns)
		}
		return
	}
	if len(m.Ns) != 1 {
		t.Fatalf("no SOA in\n%v", m)
	}
	soa, ok := m.Ns[0].(*dns.SOA)
	if !ok || soa.Hdr.Ttl != negativeTTL || soa.Minttl != negativeTTL {
		t.Errorf("authority %v, want a SOA with ttl and minimum %d", m.Ns[0], negativeTTL)
	}
}

// wantRecord wants exactly one record since the last take.
func (g *gate) wantRecord(t *testing.T, verdict firewall.Verdict, reason firewall.Reason, host string) account.Record {
	t.Helper()
	g.waitFor(t, "the query", func(account.Record) bool { return true })
	rs := g.take()
	if len(rs) != 1 {
		t.Fatalf("%d records, want 1: %+v", len(rs), rs)
	}
	r := rs[0]
	if r.Kind != account.KindDNS || r.Port != 0 || r.Verdict != verdict || r.Reason != reason || r.Host != host {
		t.Errorf("record %+v, want kind dns, port 0, %s, %s, host %q", r, verdict, reason, host)
	}
	if r.Time.IsZero() || !r.Client.Addr().IsLoopback() {
		t.Errorf("record lacks time or client: %+v", r)
	}
	return r
}

func TestServeNeedsItsFields(t *testing.T) {
	full := Server{
		Answer: answerAddr, Prefix: netip.MustParsePrefix("127.0.0.0/8"),
		Record: func(account.Record) {}, Log: slog.New(slog.DiscardHandler),
	}
	for name, spoil := range map[string]func(*Server){
		"no answer":   func(s *Server) { s.Answer = netip.Addr{} },
		"IPv6 answer": func(s *Server) { s.Answer = netip.MustParseAddr("2001:db8::2") },
		"no prefix":   func(s *Server) { s.Prefix = netip.Prefix{} },
		"no record":   func(s *Server) { s.Record = nil },
		"no log":      func(s *Server) { s.Log = nil },
	} {
		t.Run(name, func(t *testing.T) {
			s := full
			spoil(&s)
			if _, err := s.cell(); err == nil {
				t.Error("accepted")
			}
		})
	}
	if _, err := full.cell(); err != nil {
		t.Errorf("control: %v", err)
	}
}

// The zero policy denies.
func TestNilPolicyDeniesEverything(t *testing.T) {
	g := serve(t, Server{})
	for _, name := range []string{"allowed.example.", "github.com.", "x.tree.example."} {
		m, _ := g.ask(t, question(name, dns.TypeA))
		wantEmpty(t, m, dns.RcodeNameError)
	}
}

// Serve ends with its context, though connections are open, and closes what it
// was given.
func TestServeEndsWithContext(t *testing.T) {
	g := serve(t, Server{Policy: policy(t, "strict")})
	g.alive(t)
	c := g.dial(t, "tcp4")
	if err := g.stop(); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Read(make([]byte, 1)); err == nil {
		t.Error("a connection outlived Serve")
	}
	if c, err := net.Dial("tcp4", g.addr); err == nil {
		c.Close()
		t.Error("the listener outlived Serve")
	}
}

// A listener that fails ends the other one too, with its error.
func TestServeFailsAsAWhole(t *testing.T) {
	pc, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ln.Close()
	s := Server{
		Answer: answerAddr, Prefix: netip.MustParsePrefix("127.0.0.1/32"),
		Record: func(account.Record) {}, Log: slog.New(slog.DiscardHandler),
	}
	if err := s.Serve(context.Background(), pc, ln); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Serve: %v, want the listener's failure", err)
	}
	if err := pc.SetDeadline(time.Now()); !errors.Is(err, net.ErrClosed) {
		t.Error("the UDP socket is still open")
	}
}

// A fault over one query, also in what keeps its record, denies that query and ends
// nothing else: neither the loop of all cells nor the connection of another client.
func TestPanicsAreContained(t *testing.T) {
	var log output.Buffer
	g := serve(t, Server{Policy: policy(t, "strict"), Log: slog.New(slog.NewTextHandler(&log, nil)),
		Deliver: func(records []account.Record) error {
			if strings.HasPrefix(records[0].Host, "fault.") {
				panic("a test")
			}
			return nil
		}})
	standing := &dns.Conn{Conn: g.dial(t, "tcp4")}
	for i, network := range []string{"udp4", "tcp4"} {
		conn := &dns.Conn{Conn: g.dial(t, network)}
		if err := conn.WriteMsg(question("fault.tree.example.", dns.TypeA)); err != nil {
			t.Fatal(err)
		}
		_ = conn.SetReadDeadline(time.Now().Add(200 * time.Millisecond))
		if m, err := conn.ReadMsg(); err == nil {
			t.Errorf("%s: answered %v", network, m)
		}
		for _, c := range []*dns.Conn{standing, {Conn: g.dial(t, network)}} {
			if err := c.WriteMsg(question("allowed.example.", dns.TypeA)); err != nil {
				t.Fatal(err)
			}
			if m, err := c.ReadMsg(); err != nil || len(m.Answer) != 1 {
				t.Errorf("%s: control: %v, %v", network, m, err)
			}
		}
		if n := strings.Count(log.String(), "panic while"); n != i+1 {
			t.Errorf("%s: %d panics in the log:\n%s", network, n, log.String())
		}
	}
}
