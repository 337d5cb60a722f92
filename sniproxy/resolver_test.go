package sniproxy

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miekg/dns"

	"sallyport/firewall"
)

// A dnsServer answers from zone text on loopback, over UDP and TCP.
type dnsServer struct {
	addr netip.AddrPort
	zone map[string][]dns.RR
	// sound makes it answer the names that misbehave, too.
	sound atomic.Bool

	mu    sync.Mutex // guards asked
	asked []string   // "udp name. TYPE"
}

// startDNS serves zone; names not in it do not exist. These names misbehave:
// servfail.example, silent.example, liar.example (answers another question);
// those that begin with "big" are cut over UDP, and "half" is silent about AAAA.
func startDNS(t *testing.T, zone string) *dnsServer {
	t.Helper()
	s := &dnsServer{zone: map[string][]dns.RR{}}
	parser := dns.NewZoneParser(strings.NewReader(zone), ".", "")
	for rr, ok := parser.Next(); ok; rr, ok = parser.Next() {
		name := strings.ToLower(rr.Header().Name)
		s.zone[name] = append(s.zone[name], rr)
	}
	if err := parser.Err(); err != nil {
		t.Fatal(err)
	}
	pc, ln := listenBoth(t)
	s.addr = netip.MustParseAddrPort(pc.LocalAddr().String())
	for _, server := range []*dns.Server{{PacketConn: pc}, {Listener: ln}} {
		started := make(chan struct{})
		server.Handler = dns.HandlerFunc(s.serve)
		server.NotifyStartedFunc = func() { close(started) }
		go func() { _ = server.ActivateAndServe() }()
		<-started
		t.Cleanup(func() { _ = server.Shutdown() })
	}
	return s
}

// listenBoth listens on a port that is free for TCP and for UDP.
func listenBoth(t *testing.T) (net.PacketConn, net.Listener) {
	t.Helper()
	for range 50 {
		ln := listen(t)
		if pc, err := net.ListenPacket("udp", ln.Addr().String()); err == nil {
			return pc, ln
		}
		ln.Close()
	}
	t.Fatal("no port is free for both")
	return nil, nil
}

func (s *dnsServer) serve(w dns.ResponseWriter, q *dns.Msg) {
	question := q.Question[0]
	network := w.LocalAddr().Network()
	s.mu.Lock()
	s.asked = append(s.asked, fmt.Sprint(network, " ", question.Name, " ", dns.TypeToString[question.Qtype]))
	s.mu.Unlock()
	m := new(dns.Msg).SetReply(q)
	switch name := strings.ToLower(question.Name); {
	case name == "silent.example." && !s.sound.Load():
		return
	case strings.HasPrefix(name, "half") && question.Qtype == dns.TypeAAAA:
		return
	case name == "servfail.example." && !s.sound.Load():
		m.Rcode = dns.RcodeServerFailure
	case name == "liar.example.":
		m.Question[0].Name = "other.example."
		m.Answer = s.chain("other.example.", question.Qtype)
	case s.zone[name] == nil:
		m.Rcode = dns.RcodeNameError
	case strings.HasPrefix(name, "big") && network == "udp":
		m.Truncated = true
	default:
		m.Answer = s.chain(name, question.Qtype)
	}
	_ = w.WriteMsg(m)
}

// chain is a recursive server's answer: the CNAMEs and what they lead to.
func (s *dnsServer) chain(name string, qtype uint16) (answer []dns.RR) {
	for range 20 {
		next := ""
		for _, rr := range s.zone[name] {
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

func (s *dnsServer) questions() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.asked)
}

func parseName(t *testing.T, s string) firewall.Name {
	t.Helper()
	n, err := firewall.ParseName(s)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

const testZone = `
both.example.     60 IN A 192.0.2.1
both.example.     60 IN A 192.0.2.2
both.example.     60 IN AAAA 2001:db8::1
four.example.     60 IN A 192.0.2.4
six.example.      60 IN AAAA 2001:db8::6
none.example.     60 IN TXT "no address"
alias.example.    60 IN CNAME Next_1.Example.
next_1.example.   60 IN CNAME both.example.
inside.example.   60 IN CNAME vault.corp.internal.
vault.corp.internal. 60 IN A 192.0.2.66
meta.example.     60 IN CNAME hop.example.
hop.example.      60 IN CNAME Metadata.Google.Internal.
metadata.google.internal. 60 IN A 192.0.2.67
local.example.    60 IN CNAME localhost.
literal.example.  60 IN CNAME 10.0.0.1.
dotted.example.   60 IN CNAME a\.b.example.
loop.example.     60 IN CNAME loop.example.
mixed.example.    60 IN CNAME four.example.
mixed.example.    60 IN A 192.0.2.9
mapped.example.   60 IN AAAA ::ffff:10.0.0.1
big.example.      60 IN A 192.0.2.3
half.example.     60 IN A 192.0.2.7
`

func manyRecords(name string, n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "%s 60 IN A 198.51.%d.%d\n", name, i/256, i%256)
	}
	return b.String()
}

// TestResolve asks a real DNS server whose answers are good and bad.
//
// probe: R10
// oracle: the answers of a real DNS server, held against what the resolver makes of
// them
func TestResolve(t *testing.T) {
	zone := testZone + manyRecords("big1000.example.", 1000)
	for i := range 12 {
		zone += fmt.Sprintf("long%d.example. 60 IN CNAME long%d.example.\n", i, i+1)
	}
	zone += "long12.example. 60 IN A 192.0.2.12\n"
	s := startDNS(t, zone)
	tests := []struct {
		name    string
		want    string // addresses, or their number
		err     string
		refused bool
	}{
		{"both.example", "192.0.2.1 192.0.2.2 2001:db8::1", "", false},
		{"four.example", "192.0.2.4", "", false},
		{"six.example", "2001:db8::6", "", false},
		{"alias.example", "192.0.2.1 192.0.2.2 2001:db8::1", "", false},
		{"big.example", "192.0.2.3", "", false},
		{"half.example", "192.0.2.7", "", false},
		{"mapped.example", "::ffff:10.0.0.1", "", false}, // for the judge to refuse
		{"none.example", "", "it has no address", false},
		{"absent.example", "", "no such name", false},
		{"servfail.example", "", "SERVFAIL", false},
		{"liar.example", "", "another question", false},
		// probe: R6
		{"inside.example", "", "vault.corp.internal", true},
		{"meta.example", "", "Metadata.Google.Internal", true},
		// probe: R6, R9
		{"local.example", "", "localhost", true},
		// probe: R6
		{"literal.example", "", "10.0.0.1", true},
		{"dotted.example", "", `a\\.b.example`, true},

		{"loop.example", "", "more than 8 CNAMEs", true},
		{"long0.example", "", "more than 8 CNAMEs", true},
		{"long4.example", "192.0.2.12", "", false},
		{"mixed.example", "", "addresses of its own", true},
	}
	r := &DNSResolver{Servers: []DNSServer{UDPServer(s.addr)}}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			addrs, err := r.Resolve(t.Context(), parseName(t, tt.name))
			if got := strings.Trim(fmt.Sprint(addrs), "[]"); got != tt.want {
				t.Errorf("addresses %q, want %q", got, tt.want)
			}
			var refused *RefusedAnswerError
			if (err != nil) != (tt.err != "") || errors.As(err, &refused) != tt.refused ||
				err != nil && !strings.Contains(err.Error(), tt.err) {
				t.Errorf("error %v, want %q, refused %v", err, tt.err, tt.refused)
			}
		})
	}
	t.Run("1000 answers", func(t *testing.T) {
		addrs, err := r.Resolve(t.Context(), parseName(t, "big1000.example"))
		if ok, _ := firewall.JudgeAnswer(firewall.Decision{Verdict: firewall.Allow}, addrs); ok || err != nil {
			t.Errorf("%d addresses, %v", len(addrs), err)
		}
	})
}

// A name is asked for as it is, fully qualified, whatever its parts look like.
//
// probe: R9
// oracle: the questions as the DNS server on the far side got them
func TestResolveAsksTheNameAlone(t *testing.T) {
	aliases := filepath.Join(t.TempDir(), "aliases")
	if err := os.WriteFile(aliases, []byte("absent.example other.example\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, value := range map[string]string{"LOCALDOMAIN": "corp.example", "RES_OPTIONS": "ndots:5", "HOSTALIASES": aliases} {
		t.Setenv(name, value) // resolver(5)
	}
	s := startDNS(t, testZone)
	r := &DNSResolver{Servers: []DNSServer{UDPServer(s.addr)}}
	_, _ = r.Resolve(t.Context(), parseName(t, "absent.example"))
	_, _ = r.Resolve(t.Context(), parseName(t, "big.example"))
	got := s.questions()
	slices.Sort(got)
	want := []string{
		"tcp big.example. A", "tcp big.example. AAAA",
		"udp absent.example. A", "udp absent.example. AAAA", "udp big.example. A", "udp big.example. AAAA",
	}
	if !slices.Equal(got, want) {
		t.Errorf("asked %q, want %q", got, want)
	}
}

// The next server answers where one is dead, silent or broken; that a name does
// not exist is an answer.
//
// probe: R10
// oracle: which of two real servers has answered
func TestResolveNextServer(t *testing.T) {
	const zone = "four.example. 60 IN A 192.0.2.4\nservfail.example. 60 IN A 192.0.2.5\nsilent.example. 60 IN A 192.0.2.6\n"
	good, bad := startDNS(t, zone), startDNS(t, "")
	good.sound.Store(true)
	dead := netip.MustParseAddrPort("127.0.0.1:1")
	tests := []struct {
		name  string
		first netip.AddrPort
		want  string
	}{
		{"four.example", dead, "[192.0.2.4]"},
		{"servfail.example", bad.addr, "[192.0.2.5]"},
		{"silent.example", bad.addr, "[192.0.2.6]"},
		{"four.example", bad.addr, "[]"},
	}
	for _, tt := range tests {
		r := &DNSResolver{Servers: []DNSServer{UDPServer(tt.first), UDPServer(good.addr)}}
		addrs, err := r.Resolve(t.Context(), parseName(t, tt.name))
		if got := fmt.Sprint(addrs); got != tt.want || (err == nil) != (len(addrs) > 0) {
			t.Errorf("%s by way of %s: %s, %v; want %s", tt.name, tt.first, got, err, tt.want)
		}
	}
}

// TestResolveFailsClosed asks nobody, a silent server, and for no name.
//
// probe: R10
// oracle: an error and no address
func TestResolveFailsClosed(t *testing.T) {
	s := startDNS(t, testZone)
	r := &DNSResolver{Servers: []DNSServer{UDPServer(s.addr)}}
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(50*time.Millisecond, cancel)
	start := time.Now()
	if addrs, err := r.Resolve(ctx, parseName(t, "silent.example")); err == nil {
		t.Errorf("a silent server resolved to %v", addrs)
	}
	if d := time.Since(start); d > time.Second {
		t.Errorf("a cancelled look-up took %v", d)
	}
	if _, err := r.Resolve(t.Context(), firewall.Name{}); err == nil {
		t.Error("no name resolved")
	}
	if _, err := new(DNSResolver).Resolve(t.Context(), parseName(t, "four.example")); err == nil {
		t.Error("resolved without a server")
	}
}

// probe: R9
// oracle: the servers that are made of a resolv.conf with search domains
func TestSystemResolver(t *testing.T) {
	tests := []struct {
		name, conf, want, err string
	}{
		{"two", "# c\nsearch corp.example\nnameserver 192.0.2.53\nnameserver fe80::1%eth0\noptions ndots:5\n", "[udp://192.0.2.53:53 udp://[fe80::1%eth0]:53]", ""},
		{"none", "search corp.example\n", "", "no nameserver"},
		{"empty", "", "", "no nameserver"},
		{"a name", "nameserver dns.example\n", "", "not an IP address"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "resolv.conf")
			if err := os.WriteFile(path, []byte(tt.conf), 0o600); err != nil {
				t.Fatal(err)
			}
			r, err := SystemResolver(path)
			if tt.err != "" {
				if err == nil || !strings.Contains(err.Error(), tt.err) {
					t.Errorf("error %v, want %q", err, tt.err)
				}
				return
			}
			if err != nil || fmt.Sprint(r.Servers) != tt.want {
				t.Errorf("%v, %v; want %s", r, err, tt.want)
			}
		})
	}
	if _, err := SystemResolver(filepath.Join(t.TempDir(), "absent")); err == nil {
		t.Error("a missing file is no error")
	}
}

// The answer to a second look-up (rebinding) never reaches a dial unjudged.
//
// probe: R4
// oracle: the addresses that were dialled, and the records
func TestRebinding(t *testing.T) {
	c := newCell(t, "open", nil)
	for i, answer := range []string{"1.1.1.1", "10.0.0.1"} {
		c.resolver.set("rebind.example", answer)
		send(t, dialTCP(t, c.tls), record(message(sni("rebind.example"))))
		r := c.last(i + 1)
		if want := []firewall.Reason{firewall.ReasonDial, firewall.ReasonAddress}[i]; r.Reason != want {
			t.Errorf("record %+v", r)
		}
	}
	if got := fmt.Sprint(c.dials()); got != "[1.1.1.1:443]" {
		t.Errorf("dialled %s", got)
	}
}
