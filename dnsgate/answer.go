package dnsgate

import (
	"net/netip"
	"strings"
	"time"

	"github.com/miekg/dns"

	"sallyport/firewall"
	"sallyport/firewall/account"
	"sallyport/internal/contain"
)

const (
	// maxReply is the longest message that the gate sends: what fits in one packet
	// on any path (DNS flag day 2020). Without EDNS it is 512, RFC 1035, section
	// 4.2.1, and the longest reply here is shorter.
	maxReply = 1232
	// negativeTTL is how long a client may remember that a name does not exist, in
	// seconds; RFC 2308, section 5.
	negativeTTL = 5
	// compressFrom is the length of a name's text from which it is written once
	// instead of twice, so that the reply stays below 512 bytes. Shorter ones are
	// not worth the map.
	compressFrom = 128
	// maxHost cuts the names that are no host names in the records.
	maxHost = 255
)

// An answerer holds what one goroutine needs to answer one message after
// another.
type answerer struct {
	c       *cell
	now     time.Time // of the messages, as the caller sets it
	query   query
	texts   texts
	reply   dns.Msg
	records []account.Record // of the messages that were answered and not delivered

	question [1]dns.Question
	section  [1]dns.RR // the answer or the SOA
	extra    [1]dns.RR
	a        dns.A
	soa      dns.SOA
	opt      dns.OPT
	buf      []byte // 2+maxReply long: there is room before the message for TCP's length
}

func (c *cell) newAnswerer() *answerer {
	return &answerer{c: c, a: c.a(), soa: soa(), buf: make([]byte, 2+maxReply)}
}

// a is the answer to any name, which it lacks.
func (c *cell) a() dns.A {
	return dns.A{
		Hdr: dns.RR_Header{Name: ".", Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: c.TTL},
		A:   c.Answer.AsSlice(),
	}
}

// soa has the root as owner: an ancestor of every name, so that any client
// takes it.
func soa() dns.SOA {
	return dns.SOA{
		Hdr: dns.RR_Header{Name: ".", Rrtype: dns.TypeSOA, Class: dns.ClassINET, Ttl: negativeTTL},
		Ns:  "gate.invalid.", Mbox: "nobody.invalid.",
		Serial: 1, Refresh: 3600, Retry: 600, Expire: 86400, Minttl: negativeTTL,
	}
}

// answer is respond and deliver for a message by itself.
func (w *answerer) answer(msg []byte, client netip.AddrPort) (reply []byte) {
	reply = w.respond(msg, client)
	if !w.deliver() {
		return nil
	}
	return reply
}

// deliver delivers the records of the messages that were answered since the last
// call, and reports whether the replies may be sent.
func (w *answerer) deliver() bool {
	ok := len(w.records) == 0 || w.c.deliver(w.records)
	w.records = w.records[:0]
	w.texts.reset()
	return ok
}

// respond judges one message and returns the reply, behind two bytes that are
// free for its length; nil is no reply. It is in w.buf. Each call makes one
// record, for deliver.
func (w *answerer) respond(msg []byte, client netip.AddrPort) (reply []byte) {
	w.records = append(w.records, account.Record{})
	rec := &w.records[len(w.records)-1]
	rec.Time, rec.Client, rec.Kind = w.now, client, account.KindDNS
	rec.Verdict, rec.Reason = firewall.Deny, firewall.ReasonBadQuery
	defer contain.With(func(p *contain.Panic) {
		w.c.Panicked(p)
		rec.Verdict, rec.Reason, rec.Detail, reply = firewall.Deny, firewall.ReasonFault, p.Error(), nil
	})
	if !w.c.general {
		if reply, ok := w.answerFast(msg, rec); ok {
			return reply
		}
	}
	if f := w.query.parse(msg); f != nil {
		rec.Host, rec.Detail = w.host(), f.detail
		if f.silent {
			return nil
		}
		return w.pack(f.rcode, nil)
	}
	rcode := w.judge(rec)
	var rr dns.RR
	switch {
	case rcode == dns.RcodeSuccess && w.query.question.Qtype == dns.TypeA:
		w.a.Hdr.Name = w.query.question.Name
		rr = &w.a
	case rcode == dns.RcodeSuccess || rcode == dns.RcodeNameError:
		rr = &w.soa
	}
	return w.pack(rcode, rr)
}

// judge decides a well-formed query, completes its record and returns the
// response code.
func (w *answerer) judge(rec *account.Record) int {
	q := &w.query.question
	if fault := refusedKind(q); fault != "" {
		rec.Host, rec.Detail = w.host(), fault
		return dns.RcodeRefused
	}
	rec.Detail = typeText(q.Qtype)
	name, err := firewall.ParseName(q.Name)
	if err != nil {
		rec.Host, rec.Reason = w.host(), firewall.ReasonBadName
		rec.Detail += ": " + err.Error()
		if q.Name == "." {
			// To deny the root would deny every name below it; RFC 8020.
			return dns.RcodeRefused
		}
		return dns.RcodeNameError
	}
	d, digest := w.c.decide(name)
	rec.Host, rec.Verdict, rec.Reason, rec.Rule, rec.Line = name.String(), d.Verdict, d.Reason, d.Rule, d.Line
	rec.Digest = digest
	if !d.Allowed() {
		if d.Detail != "" {
			rec.Detail += ": " + d.Detail
		}
		return dns.RcodeNameError
	}
	return dns.RcodeSuccess
}

// refusedKind says why a question is refused whatever its name is, or "".
func refusedKind(q *dns.Question) string {
	switch {
	case q.Qclass != dns.ClassINET:
		return "class " + classText(q.Qclass)
	case q.Qtype == dns.TypeAXFR || q.Qtype == dns.TypeIXFR:
		return typeText(q.Qtype)
	}
	return ""
}

// host is the name that was asked for as a record of a refused query has it.
func (w *answerer) host() string {
	if !w.query.hasQuestion {
		return ""
	}
	if name, err := firewall.ParseName(w.query.question.Name); err == nil {
		return name.String()
	}
	// The presentation form is printable ASCII: what is not is \DDD in it (RFC
	// 4343, section 2.1), so that it only has to be cut.
	host := w.query.question.Name
	if len(host) > 1 {
		host = strings.TrimSuffix(host, ".")
	}
	if len(host) > maxHost {
		host = host[:maxHost-3] + "..."
	}
	return host
}

// pack builds the reply to the query: rr is the answer if it is an A record,
// else it goes into the section of authority.
func (w *answerer) pack(rcode int, rr dns.RR) []byte {
	q, m := &w.query, &w.reply
	*m = dns.Msg{MsgHdr: dns.MsgHdr{
		Id: q.id, Response: true, Opcode: q.opcode, Rcode: rcode,
		Authoritative:    rcode == dns.RcodeSuccess || rcode == dns.RcodeNameError,
		RecursionDesired: q.bits&bitRecursionDesired != 0,
		// Stub resolvers take a server without recursion for a broken one.
		RecursionAvailable: true,
		CheckingDisabled:   q.bits&bitCheckingDisabled != 0,
	}}
	if q.hasQuestion {
		w.question[0] = q.question
		m.Question = w.question[:]
		m.Compress = len(q.question.Name) >= compressFrom
	}
	if rr != nil {
		w.section[0] = rr
		if rr == dns.RR(&w.a) {
			m.Answer = w.section[:]
		} else {
			m.Ns = w.section[:]
		}
	}
	if q.edns {
		w.opt = dns.OPT{Hdr: dns.RR_Header{Name: ".", Rrtype: dns.TypeOPT}}
		w.opt.SetUDPSize(maxReply)
		if q.do {
			w.opt.SetDo()
		}
		w.extra[0] = &w.opt
		m.Extra = w.extra[:]
	}
	return w.finish()
}

// finish packs the reply into the buffer.
func (w *answerer) finish() []byte {
	out, err := w.reply.PackBuffer(w.buf[2:])
	if err != nil || len(out) > maxReply {
		w.c.Log.Error("dnsgate: cannot pack a reply", "len", len(out), "error", err)
		return nil
	}
	if &out[0] != &w.buf[2] {
		copy(w.buf[2:], out) // the packer found its estimate too long for the buffer
	}
	return w.buf[:2+len(out)]
}
