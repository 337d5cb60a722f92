package dnsgate

import (
	"encoding/binary"
	"fmt"
	"unsafe"

	"github.com/miekg/dns"

	"sallyport/firewall/account"
)

// Most queries look alike: one question of class IN whose name is made of
// letters, digits, hyphens and underscores, with no other record but an OPT
// without options. These are read and answered here, without a package's types
// in between. All others take the general way (query.go, answer.go), which is
// also the measure of this one: for any message that both take, record and
// reply are the same to the byte, and FuzzFast holds them to it.

const (
	// bitsOrdinary are the bits of the header that an ordinary query may set: RD,
	// and AD and CD, RFC 4035, section 3. What is left must be zero: it makes the
	// message an answer, another opcode, or is without meaning in a query.
	bitsOrdinary = bitRecursionDesired | 1<<5 | bitCheckingDisabled

	bitAuthoritative      = 1 << 10
	bitRecursionAvailable = 1 << 7

	// pointerBits mark a compressed name; RFC 1035, section 4.1.4.
	pointerBits = 0xC0
	// optLen is the length of an OPT without options; RFC 6891, section 6.1.2.
	optLen = 11
	// bitDO is in the flags of an OPT; RFC 3225, section 3.
	bitDO = 1 << 15
)

// plainByte says which bytes have no escaped form in a name's text, of those
// that hosts have in practice.
var plainByte = func() (set [256]bool) {
	for c := range set {
		set[c] = 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '-' || c == '_'
	}
	return set
}()

// parseFast reads an ordinary query into q and returns the offset after its
// question, or reports false, with q in no particular state.
func (q *query) parseFast(msg []byte, texts *texts) (end int, ok bool) {
	if len(msg) < headerLen+optLen {
		return 0, false // too short for a question with a name of two labels
	}
	bits := binary.BigEndian.Uint16(msg[2:])
	counts := binary.BigEndian.Uint64(msg[4:])
	if bits&^bitsOrdinary != 0 || counts>>1 != 1<<47 {
		return 0, false // one question, nothing else but one additional record
	}
	off := nameEnd(msg)
	if off < 0 || len(msg)-off < 4 {
		return 0, false
	}
	*q = query{id: binary.BigEndian.Uint16(msg), bits: bits, opcode: dns.OpcodeQuery, hasQuestion: true}
	q.question.Qtype = binary.BigEndian.Uint16(msg[off:])
	q.question.Qclass = binary.BigEndian.Uint16(msg[off+2:])
	end = off + 4
	if q.question.Qclass != dns.ClassINET || counts&1 != 0 && !q.parseOPT(msg[end:]) {
		return 0, false
	}
	q.question.Name = texts.of(msg[headerLen:off])
	return end, true
}

// nameEnd returns the offset after the question's name, or -1 if it is not
// ordinary: the root, compressed, long, or with other bytes than hosts have.
func nameEnd(msg []byte) int {
	off := headerLen
	for {
		if off >= len(msg) {
			return -1
		}
		n := int(msg[off])
		off++
		switch {
		case n == 0 && off > headerLen+1:
			return off
		case n == 0 || n&pointerBits != 0 || n > len(msg)-off || off+n-headerLen >= compressFrom:
			return -1
		}
		for _, c := range msg[off : off+n] {
			if !plainByte[c] {
				return -1
			}
		}
		off += n
	}
}

// parseOPT reads an OPT of version 0 without options.
func (q *query) parseOPT(rr []byte) bool {
	if len(rr) < optLen || rr[0] != 0 || binary.BigEndian.Uint16(rr[1:]) != dns.TypeOPT ||
		rr[6] != 0 || binary.BigEndian.Uint16(rr[9:]) != 0 {
		return false
	}
	q.edns, q.do = true, binary.BigEndian.Uint16(rr[7:])&bitDO != 0
	return true
}

// answerFast answers msg if it is an ordinary query, and reports whether it is.
func (w *answerer) answerFast(msg []byte, rec *account.Record) (reply []byte, ok bool) {
	end, ok := w.query.parseFast(msg, &w.texts)
	if !ok {
		return nil, false
	}
	return w.packFast(w.judge(rec), msg[headerLen:end]), true
}

// packFast builds the reply to an ordinary query with this question.
func (w *answerer) packFast(rcode int, question []byte) []byte {
	q := &w.query
	bits := bitResponse | bitRecursionAvailable | q.bits&(bitRecursionDesired|bitCheckingDisabled) | uint16(rcode)
	var answers, authority, additional byte
	b := append(w.buf[:2+headerLen], question...)
	switch {
	case rcode == dns.RcodeSuccess && q.question.Qtype == dns.TypeA:
		bits |= bitAuthoritative
		answers = 1
		b = append(b, question[:len(question)-4]...) // the owner
		b = append(b, w.c.rawA...)
	case rcode == dns.RcodeSuccess || rcode == dns.RcodeNameError:
		bits |= bitAuthoritative
		authority = 1
		b = append(b, w.c.rawSOA...)
	}
	if q.edns {
		additional = 1
		var do byte
		if q.do {
			do = bitDO >> 8
		}
		b = append(b, 0, 0, byte(dns.TypeOPT), maxReply>>8, maxReply&0xFF, 0, 0, do, 0, 0, 0)
	}
	header := b[2:]
	binary.BigEndian.PutUint16(header, q.id)
	binary.BigEndian.PutUint16(header[2:], bits)
	copy(header[4:], []byte{0, 1, 0, answers, 0, authority, 0, additional})
	return b
}

// rawRecord is rr in wire format without the first skip bytes.
func rawRecord(rr dns.RR, skip int) ([]byte, error) {
	b := make([]byte, 512)
	n, err := dns.PackRR(rr, b, 0, nil, false)
	if err != nil {
		return nil, fmt.Errorf("dnsgate: pack %T: %w", rr, err)
	}
	return b[skip:n:n], nil
}

// texts are the names of the messages that are answered together.
type texts struct {
	buf  []byte // its length is that of all texts
	next int    // where the next begins
}

// reset forgets the texts: their strings are not valid any more.
func (t *texts) reset() { t.next = 0 }

// of is the text of an ordinary name in wire format, in the case it was sent. It
// is valid until reset.
func (t *texts) of(wire []byte) string {
	n := len(wire) - 1 // each dot has the place of the next label's length
	if n > len(t.buf)-t.next {
		t.buf, t.next = make([]byte, max(n, maxBatch*compressFrom)), 0
	}
	text := t.buf[t.next : t.next+n]
	t.next += n
	copy(text, wire[1:])
	for at := int(wire[0]); at < n; at += 1 + int(wire[at+1]) {
		text[at] = '.'
	}
	// A copy for each query, of which records keep one of each name, would be half
	// of what a query costs the heap.
	return unsafe.String(&text[0], n)
}
