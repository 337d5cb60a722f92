package dnsgate

import (
	"fmt"
	"strings"
	"testing"

	"github.com/miekg/dns"

	"sallyport/firewall"
)

// What each policy answers for which name, for the address and for every other
// type: the rcode and the verdict are those of the name alone.
//
// probe: D5, D6
// oracle: the reply as miekg/dns parses it: an address only for an allowed name and
// type A; the record of each query. Each policy has allowed names beside the refused
func TestNames(t *testing.T) {
	type outcome struct {
		rcode   int
		verdict firewall.Verdict
		reason  firewall.Reason
	}
	var (
		listed  = outcome{dns.RcodeSuccess, firewall.Allow, firewall.ReasonListed}
		open    = outcome{dns.RcodeSuccess, firewall.Allow, firewall.ReasonOpen}
		none    = outcome{dns.RcodeNameError, firewall.Deny, firewall.ReasonNotListed}
		floor   = outcome{dns.RcodeNameError, firewall.Deny, firewall.ReasonFloorName}
		bad     = outcome{dns.RcodeNameError, firewall.Deny, firewall.ReasonBadName}
		refused = outcome{dns.RcodeRefused, firewall.Deny, firewall.ReasonBadName}
	)
	tests := []struct {
		name, host   string // as sent, as recorded
		strict, open outcome
	}{
		{"allowed.example.", "allowed.example", listed, open},
		{"tree.example.", "tree.example", listed, open},
		{"a.b.c.tree.example.", "a.b.c.tree.example", listed, open},
		// Data in labels is answered here: it goes nowhere.
		// probe: D4
		{"c2VjcmV0LXRva2Vu.tree.example.", "c2vjcmv0lxrva2vu.tree.example", listed, open},
		// probe: D10
		{"AlLoWeD.eXaMpLe.", "allowed.example", listed, open},

		// probe: D1, D13
		{"sub.allowed.example.", "sub.allowed.example", none, open},
		{"eviltree.example.", "eviltree.example", none, open},
		{"tree.example.evil.example.", "tree.example.evil.example", none, open},
		{"example.com.", "example.com", none, open},
		// probe: X9
		{"xn--llowed-2nf.example.", "xn--llowed-2nf.example", none, open}, // begins in Cyrillic
		{"xn--tre-sdd.example.", "xn--tre-sdd.example", none, open},

		// probe: D18
		{"metadata.google.internal.", "metadata.google.internal", floor, floor},
		{"x.metadata.goog.", "x.metadata.goog", floor, floor},
		{"host.docker.internal.", "host.docker.internal", floor, floor},
		{"router.lan.", "router.lan", floor, floor},
		{"4.3.2.1.in-addr.arpa.", "4.3.2.1.in-addr.arpa", floor, floor},
		{"1.0.0.0.ip6.arpa.", "1.0.0.0.ip6.arpa", floor, floor},

		// probe: D18
		{"localhost.", "localhost", bad, bad},
		{"metadata.", "metadata", bad, bad},
		{"1.1.1.1.", "1.1.1.1", bad, bad},
		{"2130706433.", "2130706433", bad, bad},
		{"0x7f.1.", "0x7f.1", bad, bad},
		{"_http._tcp.allowed.example.", "_http._tcp.allowed.example", bad, bad},
		{"-x.tree.example.", "-x.tree.example", bad, bad},
		// probe: D14
		{"xn--a.tree.example.", "xn--a.tree.example", bad, bad},
		{`b\195\188cher.tree.example.`, `b\195\188cher.tree.example`, bad, bad},
		// probe: D12
		{`a\.tree.example.`, `a\.tree.example`, bad, bad},
		{`allowed\.example.`, `allowed\.example`, bad, bad},
		{`a\000.tree.example.`, `a\000.tree.example`, bad, bad},
		{`a\027[31m.tree.example.`, `a\027[31m.tree.example`, bad, bad},
		{`a\010{"verdict":"allow"}.tree.example.`, `a\010{\"verdict\":\"allow\"}.tree.example`, bad, bad},
		{`\226\128\174.tree.example.`, `\226\128\174.tree.example`, bad, bad},

		{".", ".", refused, refused},
	}
	types := []uint16{
		dns.TypeA, dns.TypeAAAA, dns.TypeHTTPS, dns.TypeSVCB, dns.TypeTXT, dns.TypeNULL, dns.TypeMX, dns.TypeSRV,
		dns.TypeCNAME, dns.TypeANY, dns.TypeNS, dns.TypeSOA, dns.TypePTR, dns.TypeDS, dns.TypeDNSKEY, dns.TypeNone,
		dns.TypeTKEY, dns.TypeTSIG, dns.TypeOPT, dns.TypeMAILB, 4242, 65535,
	}
	for _, policyName := range []string{"strict", "open"} {
		g := serve(t, Server{Policy: policy(t, policyName), Rate: 1e6, Burst: 1e6})
		for _, test := range tests {
			t.Run(policyName+" "+test.name, func(t *testing.T) {
				want := test.strict
				if policyName == "open" {
					want = test.open
				}
				for _, qtype := range types {
					g.take()
					m, _ := g.ask(t, question(test.name, qtype))
					if qtype == dns.TypeA && want.rcode == dns.RcodeSuccess {
						wantA(t, m, test.name)
					} else {
						wantEmpty(t, m, want.rcode)
					}
					r := g.wantRecord(t, want.verdict, want.reason, test.host)
					if !strings.HasPrefix(r.Detail, typeText(qtype)) {
						t.Errorf("detail %q does not name the type %s", r.Detail, typeText(qtype))
					}
					if want == listed && (r.Rule == "" || r.Line != 3) {
						t.Errorf("rule %q, line %d: want the entry of line 3", r.Rule, r.Line)
					}
				}
			})
		}
		g.alive(t)
	}
}

// The header and the question of a reply are what a stub resolver wants.
//
// probe: D10
// oracle: the question section of the reply, compared byte for byte with the one that
// was sent
func TestReplyHeader(t *testing.T) {
	g := serve(t, Server{Policy: policy(t, "strict")})
	for _, name := range []string{"aLLowed.Example.", "OTHER.example."} {
		q := question(name, dns.TypeA)
		q.Id, q.CheckingDisabled, q.AuthenticatedData = 4711, true, true
		m, _ := g.ask(t, q)
		if m.Id != 4711 || !m.Response || m.Opcode != dns.OpcodeQuery || !m.Authoritative || !m.RecursionDesired ||
			!m.RecursionAvailable || !m.CheckingDisabled || m.AuthenticatedData || m.Truncated || m.Zero {
			t.Errorf("header %v", m.MsgHdr)
		}
		if len(m.Question) != 1 || m.Question[0] != q.Question[0] {
			t.Errorf("question %v, want %v with the case as it was", m.Question, q.Question)
		}
	}
	q := question("allowed.example.", dns.TypeA)
	q.RecursionDesired = false
	if m, _ := g.ask(t, q); m.RecursionDesired {
		t.Error("RD was made up")
	}
}

// The longest names make replies that fit, without and with EDNS.
//
// probe: D16
// oracle: the length of the reply on the socket
func TestReplyFits(t *testing.T) {
	g := serve(t, Server{Policy: policy(t, "strict")})
	label := strings.Repeat("a", 63) + "."
	long := label + label + label + strings.Repeat("b", 63-len("tree.example.")) + ".tree.example."
	if n := len(long); n != 255 { // the text has a byte less than the wire form
		long = long[n-254:]
	}
	escaped := strings.Repeat(strings.Repeat(`\000`, 63)+".", 3) + "tree.example."
	for _, name := range []string{long, "x" + long[1:], escaped} {
		for _, edns := range []bool{false, true} {
			q := question(name, dns.TypeA)
			limit := dns.MinMsgSize
			if edns {
				q.SetEdns0(65535, true)
				limit = maxReply
			}
			m, n := g.ask(t, q)
			if n > limit || m.Truncated {
				t.Errorf("%d bytes, truncated %v; want at most %d", n, m.Truncated, limit)
			}
			if len(m.Question) != 1 || m.Question[0].Name != name {
				t.Errorf("question %v", m.Question)
			}
			if name == long {
				wantA(t, m, name)
			} else if m.Rcode == dns.RcodeSuccess && name == escaped {
				t.Errorf("allowed: %v", m)
			}
		}
	}
}

// TestEDNS asks with every size, with options that nobody knows, and with a version
// that there is not.
//
// probe: D16
// oracle: the OPT record and length of the reply; the record of the query that was
// refused
func TestEDNS(t *testing.T) {
	g := serve(t, Server{Policy: policy(t, "strict")})

	m, _ := g.ask(t, question("allowed.example.", dns.TypeA))
	if m.IsEdns0() != nil {
		t.Error("OPT in a reply to a query without")
	}
	for _, size := range []uint16{0, 512, 1232, 4096, 65535} {
		for _, do := range []bool{false, true} {
			q := question("allowed.example.", dns.TypeA)
			q.SetEdns0(size, do)
			opt := q.IsEdns0()
			opt.Option = append(opt.Option,
				&dns.EDNS0_COOKIE{Code: dns.EDNS0COOKIE, Cookie: "0123456789abcdef"},
				&dns.EDNS0_LOCAL{Code: 65001, Data: make([]byte, 300)})
			m, n := g.ask(t, q)
			wantA(t, m, "allowed.example.")
			got := m.IsEdns0()
			if got == nil || got.UDPSize() != maxReply || got.Version() != 0 || got.Do() != do || len(got.Option) != 0 {
				t.Errorf("size %d, do %v: OPT %v", size, do, got)
			}
			if n > maxReply {
				t.Errorf("%d bytes", n)
			}
		}
	}

	g.take()
	q := question("allowed.example.", dns.TypeA)
	q.SetEdns0(1232, false)
	q.IsEdns0().SetVersion(1)
	m, _ = g.ask(t, q)
	if m.Rcode != dns.RcodeBadVers || len(m.Answer) != 0 || m.IsEdns0() == nil || m.IsEdns0().Version() != 0 {
		t.Errorf("want BADVERS with version 0, got\n%v", m)
	}
	g.wantRecord(t, firewall.Deny, firewall.ReasonBadQuery, "allowed.example")
	g.alive(t)
}

// What is refused whatever the name is: an allowed one makes no difference.
//
// probe: D7, D8
// oracle: the response code and an empty reply for each, the record of each decision,
// and that an allowed name resolves at the end
func TestRefusedKinds(t *testing.T) {
	g := serve(t, Server{Policy: policy(t, "open")})
	for _, class := range []uint16{dns.ClassCHAOS, dns.ClassANY, dns.ClassNONE, dns.ClassHESIOD, 0, 65535} {
		for _, name := range []string{"allowed.example.", "version.bind."} {
			g.take()
			q := question(name, dns.TypeTXT)
			q.Question[0].Qclass = class
			m, _ := g.ask(t, q)
			wantEmpty(t, m, dns.RcodeRefused)
			g.wantRecord(t, firewall.Deny, firewall.ReasonBadQuery, strings.TrimSuffix(name, "."))
		}
	}
	for _, qtype := range []uint16{dns.TypeAXFR, dns.TypeIXFR} {
		g.take()
		q := question("allowed.example.", qtype)
		if qtype == dns.TypeIXFR {
			q.SetIxfr("allowed.example.", 1, "ns.allowed.example.", "x.allowed.example.")
		}
		m, _ := g.ask(t, q)
		wantEmpty(t, m, dns.RcodeRefused)
		g.wantRecord(t, firewall.Deny, firewall.ReasonBadQuery, "allowed.example")
	}
	update := new(dns.Msg).SetUpdate("allowed.example.")
	update.Insert([]dns.RR{&dns.A{Hdr: dns.RR_Header{Name: "x.allowed.example.", Rrtype: dns.TypeA, Class: dns.ClassINET},
		A: answerAddr.AsSlice()}})
	notify := new(dns.Msg).SetNotify("allowed.example.")
	status := question("allowed.example.", dns.TypeA)
	status.Opcode = dns.OpcodeStatus
	stateful := question("allowed.example.", dns.TypeA)
	stateful.Opcode = dns.OpcodeStateful
	unassigned := question("allowed.example.", dns.TypeA)
	unassigned.Opcode = 15
	for _, q := range []*dns.Msg{update, notify, status, stateful, unassigned} {
		t.Run(fmt.Sprint("opcode ", q.Opcode), func(t *testing.T) {
			g.take()
			m, _ := g.ask(t, q)
			wantEmpty(t, m, dns.RcodeRefused)
			if m.Opcode != q.Opcode || m.Id != q.Id {
				t.Errorf("header %v", m.MsgHdr)
			}
			g.wantRecord(t, firewall.Deny, firewall.ReasonBadQuery, "")
		})
	}
	g.alive(t)
}
