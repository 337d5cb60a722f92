package dnsgate

import (
	"encoding/binary"
	"fmt"

	"github.com/miekg/dns"
)

// headerLen is the length of a message's header; RFC 1035, section 4.1.1.
const headerLen = 12

// The bits of a header's second word; RFC 1035, section 4.1.1, and RFC 4035, section 3.
const (
	bitResponse         = 1 << 15
	bitRecursionDesired = 1 << 8
	bitCheckingDisabled = 1 << 4
)

// A query is one request as far as it could be read.
type query struct {
	id     uint16
	bits   uint16
	opcode int

	hasQuestion bool
	question    dns.Question // the name in presentation form, in the case it was sent

	edns    bool
	version uint8
	do      bool
}

// A fault is why a message gets an error instead of a judgement.
type fault struct {
	// rcode is the answer; silent says that there is none.
	rcode  int
	silent bool
	detail string
}

// parse reads one request and returns the first fault that it finds, or nil.
// What was read until then stays in q: enough to answer with.
//
// The counts of the header are taken at their word: a message that does not
// hold what it claims is malformed, and bytes beyond are ignored. That, and
// that nothing but OPT is of interest, is why dns.Msg.Unpack is not used: it
// corrects the counts in silence.
func (q *query) parse(msg []byte) *fault {
	*q = query{}
	if len(msg) < headerLen {
		return &fault{silent: true, detail: "shorter than a header"}
	}
	q.id = binary.BigEndian.Uint16(msg)
	q.bits = binary.BigEndian.Uint16(msg[2:])
	q.opcode = int(q.bits >> 11 & 0xF)
	questions := binary.BigEndian.Uint16(msg[4:])
	answers := binary.BigEndian.Uint16(msg[6:])
	authority := binary.BigEndian.Uint16(msg[8:])
	additional := binary.BigEndian.Uint16(msg[10:])

	switch {
	case q.bits&bitResponse != 0:
		// To answer an answer is to take part in a loop.
		return &fault{silent: true, detail: "an answer, not a query"}
	case q.opcode != dns.OpcodeQuery:
		return &fault{rcode: dns.RcodeRefused, detail: "opcode " + opcodeText(q.opcode)}
	case questions != 1:
		return &fault{rcode: dns.RcodeFormatError, detail: fmt.Sprintf("%d questions", questions)}
	case answers != 0 || authority > 1 || additional > 2:
		// IXFR has one record of authority, OPT and TSIG are additional.
		return &fault{rcode: dns.RcodeFormatError,
			detail: fmt.Sprintf("%d answers, %d authority and %d additional records in a query", answers, authority, additional)}
	}
	off, f := q.parseQuestion(msg)
	if f != nil {
		return f
	}
	return q.parseRecords(msg, off, int(authority), int(additional))
}

// parseQuestion reads the only question and returns the offset after it.
func (q *query) parseQuestion(msg []byte) (int, *fault) {
	name, off, err := dns.UnpackDomainName(msg, headerLen)
	if err != nil {
		return 0, &fault{rcode: dns.RcodeFormatError, detail: "name: " + err.Error()}
	}
	if len(msg)-off < 4 {
		return 0, &fault{rcode: dns.RcodeFormatError, detail: "the question is cut off"}
	}
	q.hasQuestion = true
	q.question = dns.Question{
		Name:   name,
		Qtype:  binary.BigEndian.Uint16(msg[off:]),
		Qclass: binary.BigEndian.Uint16(msg[off+2:]),
	}
	return off + 4, nil
}

// parseRecords reads the records after the question for the one that matters,
// OPT; RFC 6891, section 6.1.
func (q *query) parseRecords(msg []byte, off, authority, additional int) *fault {
	for i := range authority + additional {
		rr, next, err := dns.UnpackRR(msg, off)
		if err != nil || next <= off {
			return &fault{rcode: dns.RcodeFormatError, detail: fmt.Sprintf("record %d is malformed", i+1)}
		}
		off = next
		opt, ok := rr.(*dns.OPT)
		if !ok {
			continue
		}
		if q.edns || i < authority || opt.Hdr.Name != "." {
			return &fault{rcode: dns.RcodeFormatError, detail: "OPT is repeated or misplaced"}
		}
		q.edns, q.version, q.do = true, opt.Version(), opt.Do()
	}
	if q.version != 0 {
		return &fault{rcode: dns.RcodeBadVers, detail: fmt.Sprintf("EDNS version %d", q.version)}
	}
	return nil
}

// opcodeText names an opcode for a person.
func opcodeText(op int) string {
	if s, ok := dns.OpcodeToString[op]; ok {
		return s
	}
	return fmt.Sprint(op)
}

// typeText names a query type for a person; RFC 3597, section 5.
func typeText(t uint16) string {
	if s, ok := dns.TypeToString[t]; ok {
		return s
	}
	return fmt.Sprintf("TYPE%d", t)
}

// classText names a query class for a person.
func classText(c uint16) string {
	if s, ok := dns.ClassToString[c]; ok {
		return s
	}
	return fmt.Sprintf("CLASS%d", c)
}
