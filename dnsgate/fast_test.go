package dnsgate

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/miekg/dns"

	"sallyport/firewall/account"
)

// ordinary are queries that must take the fast way, the others must not.
func ordinary(t testing.TB) (fast, general [][]byte) {
	add := func(list *[][]byte, name string, qtype uint16, change func(*dns.Msg)) {
		q := question(name, qtype)
		q.Id = 4711
		if change != nil {
			change(q)
		}
		*list = append(*list, pack(t, q))
	}
	for _, name := range []string{
		"allowed.example.", "A.Tree.EXAMPLE.", "other.example.", "metadata.google.internal.", "localhost.",
		"_http._tcp.allowed.example.", "-x.tree.example.", "1.1.1.1.", "xn--a.tree.example.",
	} {
		for _, qtype := range []uint16{dns.TypeA, dns.TypeAAAA, dns.TypeHTTPS, dns.TypeAXFR, dns.TypeANY, 4242, 0} {
			add(&fast, name, qtype, nil)
			add(&fast, name, qtype, func(m *dns.Msg) { m.SetEdns0(4096, true) })
			add(&fast, name, qtype, func(m *dns.Msg) { m.SetEdns0(512, false); m.RecursionDesired = false })
			add(&fast, name, qtype, func(m *dns.Msg) { m.CheckingDisabled, m.AuthenticatedData = true, true })
		}
	}
	add(&general, ".", dns.TypeA, nil)
	add(&general, `a\.b.tree.example.`, dns.TypeA, nil)
	add(&general, `a\000.tree.example.`, dns.TypeA, nil)
	add(&general, strings.Repeat("a", 63)+"."+strings.Repeat("b", 63)+".tree.example.", dns.TypeA, nil)
	add(&general, "allowed.example.", dns.TypeA, func(m *dns.Msg) { m.Question[0].Qclass = dns.ClassCHAOS })
	add(&general, "allowed.example.", dns.TypeA, func(m *dns.Msg) { m.Opcode = dns.OpcodeStatus })
	add(&general, "allowed.example.", dns.TypeA, func(m *dns.Msg) { m.Response = true })
	add(&general, "allowed.example.", dns.TypeA, func(m *dns.Msg) { m.Truncated = true })
	add(&general, "allowed.example.", dns.TypeA, func(m *dns.Msg) { m.SetEdns0(1232, false).IsEdns0().SetVersion(1) })
	add(&general, "allowed.example.", dns.TypeA, func(m *dns.Msg) {
		m.SetEdns0(1232, false)
		m.IsEdns0().Option = []dns.EDNS0{&dns.EDNS0_COOKIE{Code: dns.EDNS0COOKIE, Cookie: "0123456789abcdef"}}
	})
	return fast, general
}

// Which queries are ordinary: if none were, the differential tests would
// compare the general way with itself.
func TestOrdinary(t *testing.T) {
	fast, general := ordinary(t)
	for want, msgs := range map[bool][][]byte{true: fast, false: general} {
		for _, msg := range msgs {
			var q query
			if _, ok := q.parseFast(msg, new(texts)); ok != want {
				t.Errorf("%x is ordinary: %v, want %v", msg, ok, want)
			}
		}
	}
}

// FuzzFast answers arbitrary bytes in both ways. Reply and record are the same,
// but for the time.
func FuzzFast(f *testing.F) {
	fast, general := ordinary(f)
	for _, msg := range append(fast, general...) {
		f.Add(msg)
		f.Add(msg[:len(msg)-1])
		f.Add(append(bytes.Clone(msg), 0, 0, 41))
	}
	for _, m := range malformedMessages(f) {
		f.Add(m.msg)
	}
	one, record := newTestAnswerer(f, "strict")
	two, wanted := newTestAnswerer(f, "strict")
	two.c.general = true
	f.Fuzz(func(t *testing.T, msg []byte) {
		got, want := one.answer(msg, fuzzClient), two.answer(msg, fuzzClient)
		if (got == nil) != (want == nil) || got != nil && !bytes.Equal(got[2:], want[2:]) {
			t.Errorf("%x\nfast    %x\ngeneral %x", msg, got, want)
		}
		record.Time = wanted.Time
		if *record != *wanted {
			t.Errorf("%x\nfast    %+v\ngeneral %+v", msg, *record, *wanted)
		}
	})
}

// The texts of a batch stay what they are until they are reset, however many.
func TestTexts(t *testing.T) {
	var batch texts
	for range 2 {
		var got, want []string
		for i := range 5 * maxBatch {
			label := strings.Repeat("x", 1+i%60) + string(rune('a'+i%26))
			got = append(got, batch.of(append([]byte{byte(len(label))}, label+"\x07Example\x01a\x00"...)))
			want = append(want, label+".Example.a.")
		}
		if !slices.Equal(got, want) {
			t.Errorf("got %q", got)
		}
		batch.reset()
	}
}

// An ordinary query allocates nothing, whatever its answer: a cost that does
// not depend on the machine.
func TestAllocations(t *testing.T) {
	edns := question("registry.tree.example.", dns.TypeA)
	edns.SetEdns0(1232, true)
	for name, q := range map[string]*dns.Msg{
		"allowed":  question("registry.tree.example.", dns.TypeA),
		"edns":     edns,
		"nodata":   question("registry.tree.example.", dns.TypeAAAA),
		"nxdomain": question("other.example.", dns.TypeA),
	} {
		w, _ := newTestAnswerer(t, "strict")
		var last account.Record
		w.c.Deliver = func(records []account.Record) error {
			last = records[0]
			return nil
		}
		msg := pack(t, q)
		n := testing.AllocsPerRun(100, func() {
			if w.answer(msg, fuzzClient) == nil {
				t.Fatal("no reply")
			}
		})
		if n != 0 {
			t.Errorf("%s: %v allocations a query, want none", name, n)
		}
		if last.Kind != account.KindDNS || last.Host == "" {
			t.Errorf("%s: record %+v", name, last)
		}
	}
}
