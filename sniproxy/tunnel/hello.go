package tunnel

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"sallyport/firewall"
	"sallyport/sniproxy/refusal"
)

// The caps on a ClientHello. A hello of today is 0.3 to 2 KB; the largest that
// the caps admit still arrives whole when each of its bytes has a TLS record of
// its own.
const (
	maxHello      = 4 + 64<<10 // bytes of the handshake message with its header
	maxRawHello   = maxHello * (recordHeader + 1)
	maxExtensions = 128
	recordHeader  = 5
	maxRecord     = 1 << 14 // RFC 8446, section 5.1
)

// The TLS code points that the gate looks at.
const (
	recordHandshake     = 22
	messageClientHello  = 1
	extensionServerName = 0
	nameTypeHost        = 0
)

// A hello is what a ClientHello tells the gate.
type hello struct {
	name []byte // the host_name of its server_name extension; nil if it has none
	ech  bool   // it holds an encrypted ClientHello, or GREASE that looks like one
}

// A helloScanner finds the end of a ClientHello in a stream of TLS records that
// is still arriving. It looks at each byte once.
type helloScanner struct {
	next    int // where in the stream the next record header begins
	records int
	size    int     // payload bytes in the records before next
	head    [4]byte // the first of them: the handshake header
	need    int     // bytes of the message, once the header is known
}

// scan goes on over raw, which is all that has arrived; done means that the
// message is complete.
func (s *helloScanner) scan(raw []byte) (done bool, r *refusal.Refusal) {
	for s.next < len(raw) {
		if raw[s.next] != recordHandshake {
			return false, s.notHandshake(raw[s.next])
		}
		if s.next+recordHeader > len(raw) {
			return false, nil
		}
		n := int(binary.BigEndian.Uint16(raw[s.next+3:]))
		if raw[s.next+1] != 3 || n == 0 || n > maxRecord {
			return false, badHello("record of version %d and length %d", raw[s.next+1], n)
		}
		end := s.next + recordHeader + n
		if end > len(raw) {
			return false, nil
		}
		if r := s.payload(raw[s.next+recordHeader : end]); r != nil {
			return false, r
		}
		s.next = end
		s.records++
		if s.need > 0 && s.size == s.need {
			return true, nil
		}
	}
	return false, nil
}

// payload counts the payload of one record and reads the handshake header.
func (s *helloScanner) payload(p []byte) *refusal.Refusal {
	if s.size < len(s.head) {
		copy(s.head[s.size:], p)
	}
	s.size += len(p)
	if s.head[0] != messageClientHello {
		return badHello("handshake message of type %d", s.head[0])
	}
	if s.need == 0 && s.size >= len(s.head) {
		s.need = len(s.head) + int(binary.BigEndian.Uint32(s.head[:])&0xffffff)
		if s.need > maxHello {
			return &refusal.Refusal{Reason: firewall.ReasonLimit, Detail: fmt.Sprintf("a hello of %d bytes", s.need), Alert: refusal.DecodeError}
		}
	}
	if s.need > 0 && s.size > s.need {
		return badHello("data after the hello in its record")
	}
	return nil
}

// message gives the handshake message that scan found complete. It lies in raw
// where it came in one record.
func (s *helloScanner) message(raw []byte) []byte {
	if s.records == 1 {
		return raw[recordHeader:s.next]
	}
	msg := make([]byte, 0, s.need)
	for at := 0; at < s.next; {
		end := at + recordHeader + int(binary.BigEndian.Uint16(raw[at+3:]))
		msg = append(msg, raw[at+recordHeader:end]...)
		at = end
	}
	return msg
}

// notHandshake refuses what is not a handshake record. Nothing is sent to a
// client that does not speak TLS.
func (s *helloScanner) notHandshake(first byte) *refusal.Refusal {
	if s.records > 0 {
		return badHello("record of type %d inside the hello", first)
	}
	return &refusal.Refusal{Reason: firewall.ReasonBadHello, Detail: fmt.Sprintf("not TLS: the first byte is %#02x", first)}
}

func badHello(format string, args ...any) *refusal.Refusal {
	return &refusal.Refusal{Reason: firewall.ReasonBadHello, Detail: fmt.Sprintf(format, args...), Alert: refusal.DecodeError}
}

// A cursor reads the length-prefixed vectors of a handshake message. After a
// read past the end it is bad and stays so.
type cursor struct {
	rest []byte
	bad  bool
}

func (c *cursor) take(n int) []byte {
	if c.bad || n > len(c.rest) {
		c.bad = true
		return nil
	}
	b := c.rest[:n]
	c.rest = c.rest[n:]
	return b
}

func (c *cursor) uint8() int {
	if b := c.take(1); b != nil {
		return int(b[0])
	}
	return 0
}

func (c *cursor) uint16() int {
	if b := c.take(2); b != nil {
		return int(binary.BigEndian.Uint16(b))
	}
	return 0
}

// parseHello reads a whole ClientHello handshake message (RFC 8446, section
// 4.1.2). It refuses every message that two readers could take differently.
func parseHello(msg []byte) (hello, *refusal.Refusal) {
	c := &cursor{rest: msg}
	c.take(4) // type and length, which the scanner has checked
	if version := c.uint16(); version>>8 != 3 {
		return hello{}, badHello("version %#04x", version)
	}
	c.take(32) // random
	session := c.take(c.uint8())
	ciphers := c.take(c.uint16())
	compression := c.take(c.uint8())
	if c.bad || len(session) > 32 || len(ciphers) == 0 || len(ciphers)%2 != 0 || len(compression) == 0 {
		return hello{}, badHello("malformed fields")
	}
	if len(c.rest) == 0 {
		return hello{}, nil // no extensions, as before RFC 3546
	}
	extensions := &cursor{rest: c.take(c.uint16())}
	if c.bad || len(c.rest) != 0 {
		return hello{}, badHello("the extensions do not fill the message")
	}
	return parseExtensions(extensions)
}

func parseExtensions(c *cursor) (h hello, r *refusal.Refusal) {
	var seen [maxExtensions]uint16
	n := 0
	for ; len(c.rest) > 0; n++ {
		kind, data := uint16(c.uint16()), c.take(c.uint16())
		switch {
		case c.bad:
			return hello{}, badHello("malformed extensions")
		case n == len(seen):
			return hello{}, badHello("more than %d extensions", maxExtensions)
		case slices.Contains(seen[:n], kind):
			return hello{}, badHello("extension %d twice", kind)
		case isECH(kind):
			h.ech = true
		case kind == extensionServerName:
			if h.name, r = parseServerName(data); r != nil {
				return hello{}, r
			}
		}
		seen[n] = kind
	}
	return h, nil
}

// isECH reports whether an extension may hold an encrypted ClientHello, in its
// final form (0xfe0d), one of its drafts' (draft-ietf-tls-esni), or the first
// drafts', the encrypted server name (0xffce).
func isECH(kind uint16) bool {
	return kind >= 0xfe08 && kind <= 0xfe0d || kind == 0xff02 || kind == 0xffce
}

// parseServerName reads a server_name extension (RFC 6066, section 3) that holds
// one host_name and nothing else: no other name type has ever been defined.
func parseServerName(data []byte) ([]byte, *refusal.Refusal) {
	c := &cursor{rest: data}
	list := &cursor{rest: c.take(c.uint16())}
	if c.bad || len(c.rest) != 0 {
		return nil, badHello("the server names do not fill their extension")
	}
	kind := list.uint8()
	name := list.take(list.uint16())
	switch {
	case list.bad || len(name) == 0:
		return nil, badHello("malformed or empty server name")
	case kind != nameTypeHost:
		return nil, badHello("server name of type %d", kind)
	case len(list.rest) != 0:
		return nil, badHello("more than one server name")
	}
	return name, nil
}

// hostName makes the canonical name of a hello's server name. A trailing dot,
// which RFC 6066 rules out, is refused: servers do not agree on it, and the hello is
// passed on as it is, so that it could not be taken away as that of a Host is.
func hostName(sni []byte) (firewall.Name, *refusal.Refusal) {
	s := string(sni)
	if strings.HasSuffix(s, ".") {
		return firewall.Name{}, &refusal.Refusal{Reason: firewall.ReasonBadName, Detail: "trailing dot", Alert: refusal.UnrecognizedName}
	}
	name, err := firewall.ParseName(s)
	if err != nil {
		return firewall.Name{}, &refusal.Refusal{Reason: firewall.ReasonBadName, Detail: err.Error(), Alert: refusal.UnrecognizedName}
	}
	return name, nil
}
