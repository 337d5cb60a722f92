package dnsgate

import (
	"encoding/binary"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"sallyport/firewall"
	"sallyport/firewall/account"
)

// header makes the header of a query with id 0x1234, RD set and these counts.
func header(questions, answers, authority, additional uint16) []byte {
	b := []byte{0x12, 0x34, 1, 0}
	for _, n := range []uint16{questions, answers, authority, additional} {
		b = binary.BigEndian.AppendUint16(b, n)
	}
	return b
}

// A malformed is a message that is answered with FORMERR, or not at all.
type malformed struct {
	name   string
	msg    []byte
	silent bool
}

// malformedMessages are also the seeds of the fuzz target.
func malformedMessages(t testing.TB) []malformed {
	cat := func(parts ...string) []byte { return []byte(strings.Join(parts, "")) }
	one := string(header(1, 0, 0, 0))
	in := "\x00\x01\x00\x01"
	allowed := "\x07allowed\x07example\x00"
	opt := "\x00\x00\x29\x04\xd0\x00\x00\x00\x00\x00\x00"
	answer := header(1, 0, 0, 0)
	answer[2] |= 0x80
	return []malformed{
		{"empty", nil, true},
		{"one byte", []byte{0}, true},
		{"eleven bytes", header(1, 0, 0, 0)[:11], true},
		{"an answer", cat(string(answer), allowed, in), true},

		{"no question", header(0, 0, 0, 0), false},
		{"no question, though one follows", cat(string(header(0, 0, 0, 0)), allowed, in), false},
		{"two questions", cat(string(header(2, 0, 0, 0)), allowed, in, allowed, in), false},
		{"65535 questions", cat(string(header(65535, 0, 0, 0)), allowed, in), false},
		{"an answer section", cat(string(header(1, 1, 0, 0)), allowed, in, allowed, in, "\x00\x00\x00\x00\x00\x04\x01\x02\x03\x04"), false},
		{"65535 additional records", cat(string(header(1, 0, 0, 65535)), allowed, in, opt), false},
		{"additional record missing", cat(string(header(1, 0, 0, 1)), allowed, in), false},
		{"authority record missing", cat(string(header(1, 0, 1, 0)), allowed, in), false},

		{"header alone", cat(one), false},
		{"name cut off", cat(one, "\x07allow"), false},
		{"name without its root", cat(one, "\x07allowed\x07example"), false},
		{"type missing", cat(one, allowed), false},
		{"class missing", cat(one, allowed, "\x00\x01"), false},
		{"class cut off", cat(one, allowed, "\x00\x01\x00"), false},
		{"pointer to itself", cat(one, "\xc0\x0c", in), false},
		{"label, then pointer to it", cat(one, "\x01a\xc0\x0c", in), false},
		{"two pointers to each other", cat(one, "\xc0\x0e\xc0\x0c", in), false},
		{"pointer beyond the end", cat(one, "\xff\xff", in), false},
		{"half a pointer", cat(one, "\xc0"), false},
		{"label type 0x40", cat(one, "\x41a\x00", in), false},
		{"label type 0x80", cat(one, "\x81a\x00", in), false},
		{"name of 256 bytes", cat(one, strings.Repeat("\x3f"+strings.Repeat("a", 63), 3), "\x3f", strings.Repeat("b", 63), "\x00", in), false},
		{"name without end", cat(one, strings.Repeat("\x01a", 2000)), false},

		{"two OPT", cat(string(header(1, 0, 0, 2)), allowed, in, opt, opt), false},
		{"OPT in the authority", cat(string(header(1, 0, 1, 0)), allowed, in, opt), false},
		{"OPT with a name", cat(string(header(1, 0, 0, 1)), allowed, in, allowed, opt[1:]), false},
		{"OPT cut off", cat(string(header(1, 0, 0, 1)), allowed, in, opt[:8]), false},
		{"OPT longer than the message", cat(string(header(1, 0, 0, 1)), allowed, in, opt[:9], "\xff\xff"), false},
		{"option longer than OPT", cat(string(header(1, 0, 0, 1)), allowed, in, opt[:9], "\x00\x04", "\xfd\xe9\xff\xff"), false},
	}
}

// Malformed messages get FORMERR without an answer, or silence, and a record;
// none of them takes long.
//
// probe: D9, D11, D15
// oracle: the response code of each, or silence; one record with the fault of each; an
// allowed name resolves at the end
func TestMalformed(t *testing.T) {
	g := serve(t, Server{Policy: policy(t, "open")})
	for _, test := range malformedMessages(t) {
		t.Run(test.name, func(t *testing.T) {
			g.take()
			if test.silent {
				c := g.dial(t, "udp4")
				if _, err := c.Write(test.msg); err != nil {
					t.Fatal(err)
				}
				g.wantRecord(t, firewall.Deny, firewall.ReasonBadQuery, "")
				c.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
				if n, err := c.Read(make([]byte, 512)); err == nil {
					t.Errorf("a reply of %d bytes", n)
				}
				return
			}
			m, _ := g.raw(t, test.msg)
			wantEmpty(t, m, dns.RcodeFormatError)
			if m.Id != 0x1234 || !m.Response {
				t.Errorf("header %v", m.MsgHdr)
			}
			g.waitFor(t, "the message", func(r account.Record) bool { return true })
			rs := g.take()
			if len(rs) != 1 || rs[0].Verdict != firewall.Deny || rs[0].Reason != firewall.ReasonBadQuery || rs[0].Detail == "" {
				t.Errorf("records %+v, want one bad_query with its fault", rs)
			}
		})
	}
	g.alive(t)
}

// Bytes behind a complete query are ignored, even more of them than the gate reads.
//
// probe: D16
// oracle: the reply, which is that of the query without its tail
func TestTrailingGarbage(t *testing.T) {
	g := serve(t, Server{Policy: policy(t, "strict")})
	for _, extra := range []int{1, 100, maxQuery, 60000} {
		msg := append(pack(t, question("allowed.example.", dns.TypeA)), make([]byte, extra)...)
		m, _ := g.raw(t, msg)
		wantA(t, m, "allowed.example.")
	}
	// TSIG beside OPT is no fault: nobody here could verify it.
	q := question("allowed.example.", dns.TypeA)
	q.SetEdns0(1232, false)
	q.Extra = append(q.Extra, &dns.TSIG{
		Hdr:       dns.RR_Header{Name: "key.example.", Rrtype: dns.TypeTSIG, Class: dns.ClassANY},
		Algorithm: dns.HmacSHA256, MACSize: 0, OrigId: q.Id,
	})
	m, _ := g.ask(t, q)
	wantA(t, m, "allowed.example.")
}
