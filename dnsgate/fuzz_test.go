package dnsgate

import (
	"encoding/binary"
	"log/slog"
	"net/netip"
	"strings"
	"testing"

	"github.com/miekg/dns"

	"sallyport/firewall"
	"sallyport/firewall/account"
)

var noLog = slog.New(slog.DiscardHandler)

// newTestAnswerer returns an answerer of policy and the record of its last answer.
func newTestAnswerer(t testing.TB, policyName string) (*answerer, *account.Record) {
	t.Helper()
	last, made := new(account.Record), 0
	s := Server{
		Policy: policy(t, policyName), Answer: answerAddr, Prefix: netip.MustParsePrefix("127.0.0.0/8"), Log: noLog,
		Record: func(r account.Record) { *last, made = r, made+1 },
	}
	c, err := s.cell()
	if err != nil {
		t.Fatal(err)
	}
	return c.newAnswerer(), last
}

var fuzzClient = netip.MustParseAddrPort("127.0.0.1:5353")

// FuzzMessage answers arbitrary bytes. Whatever they are: no panic, one record,
// and a reply that is well-formed, short, to the question, and gives an address
// only for a name that the policy allows.
//
// probe: D11, D12, D15, F9
// oracle: every reply is parsed by a second library and held against the record; no
// text of a record holds a byte that is not printable
func FuzzMessage(f *testing.F) {
	for _, m := range malformedMessages(f) {
		f.Add(m.msg)
	}
	for _, name := range []string{"allowed.example.", "A.tree.EXAMPLE.", "other.example.", `a\000.tree.example.`, "."} {
		for _, qtype := range []uint16{dns.TypeA, dns.TypeAAAA, dns.TypeHTTPS, dns.TypeANY, dns.TypeAXFR} {
			q := question(name, qtype)
			f.Add(pack(f, q))
			q.SetEdns0(4096, true)
			f.Add(pack(f, q))
		}
	}
	w, last := newTestAnswerer(f, "strict")
	f.Fuzz(func(t *testing.T, msg []byte) {
		*last = account.Record{}
		reply := w.answer(msg, fuzzClient)
		checkRecord(t, *last)
		if reply == nil {
			if len(msg) >= headerLen && msg[2]&0x80 == 0 {
				t.Fatal("no reply to a query")
			}
			return
		}
		checkReply(t, msg, reply[2:], *last)
		checkOpinion(t, msg, reply[2:], *last)
	})
}

// checkRecord wants a record of the message that is safe to print.
func checkRecord(t *testing.T, r account.Record) {
	t.Helper()
	if r.Kind != account.KindDNS || r.Verdict == "" || r.Reason == "" || r.Client != fuzzClient || r.Port != 0 {
		t.Fatalf("record %+v", r)
	}
	if r.Reason == firewall.ReasonFault {
		t.Fatal("the gate panicked")
	}
	for _, s := range []string{r.Host, r.Detail} {
		if len(s) > 512 || strings.ContainsFunc(s, func(c rune) bool { return c < ' ' || c > '~' }) {
			t.Fatalf("unsafe text %q in the record", s)
		}
	}
}

func checkReply(t *testing.T, msg, reply []byte, r account.Record) {
	t.Helper()
	m := new(dns.Msg)
	if err := m.Unpack(reply); err != nil {
		t.Fatalf("the reply does not parse: %v", err)
	}
	if m.IsEdns0() == nil && len(reply) > dns.MinMsgSize || len(reply) > maxReply {
		t.Fatalf("a reply of %d bytes", len(reply))
	}
	if m.Id != binary.BigEndian.Uint16(msg) || !m.Response || m.Truncated || m.AuthenticatedData {
		t.Fatalf("header %v", m.MsgHdr)
	}
	switch m.Rcode {
	case dns.RcodeSuccess, dns.RcodeNameError, dns.RcodeFormatError, dns.RcodeRefused, dns.RcodeBadVers:
	default:
		t.Fatalf("rcode %d", m.Rcode)
	}
	if (r.Verdict == firewall.Allow) != (m.Rcode == dns.RcodeSuccess) {
		t.Fatalf("%s with rcode %d", r.Verdict, m.Rcode)
	}
	if r.Verdict == firewall.Allow && r.Host != "allowed.example" && r.Host != "tree.example" && !strings.HasSuffix(r.Host, ".tree.example") {
		t.Fatalf("%q is allowed", r.Host)
	}
	for _, rr := range m.Answer {
		a, ok := rr.(*dns.A)
		if !ok || r.Verdict != firewall.Allow || a.A.String() != answerAddr.String() || len(m.Question) != 1 ||
			m.Question[0].Qtype != dns.TypeA || !strings.EqualFold(a.Hdr.Name, r.Host+".") {
			t.Fatalf("answer %v with record %+v", rr, r)
		}
	}
}

func BenchmarkAnswer(b *testing.B) {
	edns := question("registry.tree.example.", dns.TypeA)
	edns.SetEdns0(1232, false)
	for _, bench := range []struct {
		name string
		msg  *dns.Msg
	}{
		{"allowed", question("registry.tree.example.", dns.TypeA)},
		{"allowed-edns", edns},
		{"nodata", question("registry.tree.example.", dns.TypeAAAA)},
		{"nxdomain", question("other.example.", dns.TypeA)},
	} {
		b.Run(bench.name, func(b *testing.B) {
			w, _ := newTestAnswerer(b, "strict")
			msg := pack(b, bench.msg)
			b.ReportAllocs()
			for b.Loop() {
				if w.answer(msg, fuzzClient) == nil {
					b.Fatal("no reply")
				}
			}
		})
	}
}
