package sniproxy

import (
	"strings"
	"testing"

	"github.com/miekg/dns"
)

// FuzzAnswer reads DNS messages that whoever owns a name may have written: an
// answer has addresses of the right family, which nothing on the floor led to.
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
		answer, err := addresses(m, parseName(t, "site.example"), qtype)
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
	})
}
