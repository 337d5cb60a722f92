package testnet

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/miekg/dns"
)

// A DNSServer answers from zone text on loopback, over UDP and TCP.
type DNSServer struct {
	Addr netip.AddrPort
	Zone map[string][]dns.RR
	// Sound makes it answer the names that misbehave, too.
	Sound atomic.Bool

	mu    sync.Mutex // guards asked
	asked []string   // "udp name. TYPE"
}

// StartDNS serves zone; names not in it do not exist. These names misbehave:
// servfail.example, silent.example, liar.example (answers another question);
// those that begin with "big" are cut over UDP, and "half" is silent about AAAA.
func StartDNS(t *testing.T, zone string) *DNSServer {
	t.Helper()
	s := &DNSServer{Zone: map[string][]dns.RR{}}
	parser := dns.NewZoneParser(strings.NewReader(zone), ".", "")
	for rr, ok := parser.Next(); ok; rr, ok = parser.Next() {
		name := strings.ToLower(rr.Header().Name)
		s.Zone[name] = append(s.Zone[name], rr)
	}
	if err := parser.Err(); err != nil {
		t.Fatal(err)
	}
	pc, ln := ListenBoth(t)
	s.Addr = netip.MustParseAddrPort(pc.LocalAddr().String())
	for _, server := range []*dns.Server{{PacketConn: pc}, {Listener: ln}} {
		started := make(chan struct{})
		server.Handler = dns.HandlerFunc(s.Answer)
		server.NotifyStartedFunc = func() { close(started) }
		go func() { _ = server.ActivateAndServe() }()
		<-started
		t.Cleanup(func() { _ = server.Shutdown() })
	}
	return s
}

// ListenBoth listens on a port that is free for TCP and for UDP.
func ListenBoth(t *testing.T) (net.PacketConn, net.Listener) {
	t.Helper()
	for range 50 {
		ln := Listen(t)
		if pc, err := net.ListenPacket("udp", ln.Addr().String()); err == nil {
			return pc, ln
		}
		ln.Close()
	}
	t.Fatal("no port is free for both")
	return nil, nil
}

// Answer answers q, as a handler of package dns.
func (s *DNSServer) Answer(w dns.ResponseWriter, q *dns.Msg) {
	question := q.Question[0]
	network := w.LocalAddr().Network()
	s.mu.Lock()
	s.asked = append(s.asked, fmt.Sprint(network, " ", question.Name, " ", dns.TypeToString[question.Qtype]))
	s.mu.Unlock()
	m := new(dns.Msg).SetReply(q)
	switch name := strings.ToLower(question.Name); {
	case name == "silent.example." && !s.Sound.Load():
		return
	case strings.HasPrefix(name, "half") && question.Qtype == dns.TypeAAAA:
		return
	case name == "servfail.example." && !s.Sound.Load():
		m.Rcode = dns.RcodeServerFailure
	case name == "liar.example.":
		m.Question[0].Name = "other.example."
		m.Answer = s.chain("other.example.", question.Qtype)
	case s.Zone[name] == nil:
		m.Rcode = dns.RcodeNameError
	case strings.HasPrefix(name, "big") && network == "udp":
		m.Truncated = true
	default:
		m.Answer = s.chain(name, question.Qtype)
	}
	_ = w.WriteMsg(m)
}

// chain is a recursive server's answer: the CNAMEs and what they lead to.
func (s *DNSServer) chain(name string, qtype uint16) (answer []dns.RR) {
	for range 20 {
		next := ""
		for _, rr := range s.Zone[name] {
			if c, ok := rr.(*dns.CNAME); ok {
				next = strings.ToLower(c.Target)
			}
			if t := rr.Header().Rrtype; t == qtype || t == dns.TypeCNAME {
				answer = append(answer, rr)
			}
		}
		if name = next; name == "" {
			break
		}
	}
	return answer
}

// Questions are those that it was asked, like "udp site.example. AAAA".
func (s *DNSServer) Questions() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.asked)
}
