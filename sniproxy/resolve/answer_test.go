package resolve

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/miekg/dns"
	"golang.org/x/net/dns/dnsmessage"

	"sallyport/firewall"
	"sallyport/sniproxy/testnet"
)

// FuzzAnswer reads DNS messages that whoever owns a name may have written: an
// answer has addresses of the right family, which nothing on the floor led to, and
// only those that another reader finds along the aliases of the name.
func FuzzAnswer(f *testing.F) {
	for _, zone := range []string{
		"site.example. 60 IN A 192.0.2.1",
		"site.example. 60 IN CNAME b.example.\nb.example. 60 IN A 192.0.2.1",
		"site.example. 60 IN CNAME x.internal.\nx.internal. 60 IN A 192.0.2.1",
		"site.example. 60 IN CNAME site.example.",
		"SITE.example. 60 CH A 192.0.2.1",
	} {
		m := new(dns.Msg)
		m.SetQuestion("site.example.", dns.TypeA)
		m.Response = true
		p := dns.NewZoneParser(strings.NewReader(zone), ".", "")
		for rr, ok := p.Next(); ok; rr, ok = p.Next() {
			m.Answer = append(m.Answer, rr)
		}
		b, err := m.Pack()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b, false)
	}
	f.Fuzz(func(t *testing.T, b []byte, six bool) {
		m := new(dns.Msg)
		if m.Unpack(b) != nil {
			return
		}
		qtype := dns.TypeA
		if six {
			qtype = dns.TypeAAAA
		}
		answer, err := addresses(m, testnet.ParseName(t, "site.example"), qtype)
		addrs := answer.Addrs
		if err != nil && addrs != nil {
			t.Errorf("both %v and %v", addrs, err)
		}
		if answer.TTL < 0 {
			t.Errorf("a TTL of %v", answer.TTL)
		}
		for _, a := range addrs {
			if a.IsValid() && a.Is4() == six {
				t.Errorf("%v in answer to a question of type %d", a, qtype)
			}
		}
		if err == nil {
			checkAliases(t, b, dnsmessage.Type(qtype), addrs)
		}
	})
}

// checkAliases holds the addresses of site.example against what dnsmessage reads.
func checkAliases(t *testing.T, b []byte, qtype dnsmessage.Type, addrs []netip.Addr) {
	t.Helper()
	var p dnsmessage.Parser
	if _, err := p.Start(b); err != nil || p.SkipAllQuestions() != nil {
		return // it is stricter
	}
	answers, err := p.AllAnswers()
	if err != nil {
		return
	}
	aliases := map[string][]string{}
	found := map[string][]netip.Addr{}
	for _, rr := range answers {
		if rr.Header.Length == 0 {
			return // dnsmessage reads a name from the bytes that follow
		}
		owner := strings.ToLower(rr.Header.Name.String())
		switch body := rr.Body.(type) {
		case *dnsmessage.CNAMEResource:
			if rr.Header.Class == dnsmessage.ClassINET {
				aliases[owner] = append(aliases[owner], strings.ToLower(body.CNAME.String()))
			}
		case *dnsmessage.AResource:
			if qtype == dnsmessage.TypeA && rr.Header.Class == dnsmessage.ClassINET {
				found[owner] = append(found[owner], netip.AddrFrom4(body.A))
			}
		case *dnsmessage.AAAAResource:
			if qtype == dnsmessage.TypeAAAA && rr.Header.Class == dnsmessage.ClassINET {
				found[owner] = append(found[owner], netip.AddrFrom16(body.AAAA))
			}
		}
	}
	owner := "site.example."
	for range maxChain {
		if len(aliases[owner]) == 0 {
			break
		}
		owner = aliases[owner][len(aliases[owner])-1]
		if n, err := firewall.ParseName(owner); err == nil {
			if rule, bad := n.OnFloor(); bad {
				t.Errorf("an alias to %s (%s) is followed", owner, rule)
			}
		}
	}
	if !slices.Equal(found[owner], addrs) {
		t.Errorf("the addresses are %v, dnsmessage finds %v of %s", addrs, found[owner], owner)
	}
}

// The other reader finds the address at the end of a chain, too.
func TestAliasesAreChecked(t *testing.T) {
	m := new(dns.Msg)
	m.SetQuestion("site.example.", dns.TypeA)
	for _, text := range []string{"b.example. 60 IN A 192.0.2.1", "SITE.example. 60 IN CNAME B.example."} {
		rr, err := dns.NewRR(text)
		if err != nil {
			t.Fatal(err)
		}
		m.Answer = append(m.Answer, rr)
	}
	b, err := m.Pack()
	if err != nil {
		t.Fatal(err)
	}
	answer, err := addresses(m, testnet.ParseName(t, "site.example"), dns.TypeA)
	if err != nil || len(answer.Addrs) != 1 {
		t.Fatalf("%+v, %v", answer, err)
	}
	checkAliases(t, b, dnsmessage.TypeA, []netip.Addr{netip.MustParseAddr("192.0.2.1")})
}
