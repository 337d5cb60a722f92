package forward

import (
	"bufio"
	"bytes"
	"fmt"
	"strconv"
	"strings"

	"sallyport/firewall"
	"sallyport/sniproxy/admission"
	"sallyport/sniproxy/refusal"
)

// The caps on a request head; beyond them a request is answered with 431.
const (
	maxHead   = 64 << 10
	maxFields = 128
	maxMethod = 32
)

// maxShownHost bounds, in bytes, how much of a bad host name a record shows.
const maxShownHost = 100

// tlsHandshake is the first byte of a client that speaks TLS (RFC 8446, section 5.1).
const tlsHandshake = 22

// chunked is the length of a body that comes in chunks.
const chunked = -1

// A request is one HTTP/1.1 request head, read so strictly that no other reader
// can take it for something else, and ready to be written anew: what goes
// upstream is never the client's own bytes.
type request struct {
	method, target string
	host           firewall.Name
	shownHost      string  // the Host field escaped, also where it was refused
	fields         []field // those that are passed on, in order
	length         int64   // of the body in bytes, or chunked
	framed         bool    // the client gave a length, be it 0
	close          bool    // the client wants no further request
	expect         bool    // the client waits for 100 Continue
}

type field struct{ name, value string }

// awaitRequest waits for the first byte of a request. One empty line before it is
// ignored: clients of old end a body with one (RFC 9112, section 2.2).
func awaitRequest(br *bufio.Reader) error {
	b, err := br.Peek(1)
	if err != nil || b[0] != '\r' {
		return err
	}
	if b, _ = br.Peek(2); string(b) != "\r\n" {
		return nil
	}
	_, _ = br.Discard(2) // which are there
	_, err = br.Peek(1)
	return err
}

// readHead reads lines up to the empty one into in.B.
func readHead(br *bufio.Reader, in *admission.HeadBuffer) *refusal.Refusal {
	if b, err := br.Peek(1); err == nil && !isToken(b[0]) {
		return notHTTP(b[0])
	}
	for start := 0; ; {
		line, err := br.ReadSlice('\n')
		for len(in.B)+len(line) > cap(in.B) {
			if r := in.Grow(maxHead); r != nil {
				return r
			}
		}
		in.B = append(in.B, line...)
		switch {
		case err == bufio.ErrBufferFull:
			continue
		case err != nil:
			return refusal.Unread(err, len(in.B), "request head", firewall.ReasonBadRequest)
		case !bytes.HasSuffix(in.B[start:], []byte("\r\n")):
			return badRequest("a line that ends without a carriage return")
		case len(in.B)-start == 2:
			return nil
		case start == 0: // at once: a client of another protocol may send no more
			if r := new(request).parseLine(string(in.B[:len(in.B)-2])); r != nil {
				return r
			}
		}
		start = len(in.B)
	}
}

// notHTTP refuses a connection that cannot be HTTP. What the client speaks is not
// known; a person who looks at what it got can read why.
func notHTTP(first byte) *refusal.Refusal {
	if first == tlsHandshake {
		return badRequest("TLS on the port of plain HTTP")
	}
	return badRequest("not HTTP: the first byte is %#02x", first)
}

func badRequest(format string, args ...any) *refusal.Refusal {
	return &refusal.Refusal{Reason: firewall.ReasonBadRequest, Detail: fmt.Sprintf(format, args...), Status: 400}
}

// parseRequest reads a request head that ends in an empty line. It follows RFC
// 9112 and takes none of the liberties that the RFC leaves to readers. The
// request is there for its shownHost even where it is refused.
func parseRequest(head []byte) (*request, *refusal.Refusal) {
	req := &request{}
	line, rest, _ := strings.Cut(string(head), "\r\n")
	r := req.parseLine(line)
	if r != nil {
		return req, r
	}
	var all []field
	for {
		line, rest, _ = strings.Cut(rest, "\r\n")
		if line == "" {
			break
		}
		f, r := parseField(line)
		if r != nil {
			return req, r
		}
		if all = append(all, f); len(all) > maxFields {
			return req, &refusal.Refusal{Reason: firewall.ReasonLimit, Detail: "too many fields", Status: 431}
		}
	}
	if r := req.parseHost(all); r != nil {
		return req, r
	}
	if r := req.parseFraming(all); r != nil {
		return req, r
	}
	return req, req.pick(all)
}

// parseLine reads the request line. Only the origin form is taken: the gate is
// no proxy that a client is configured to use.
func (req *request) parseLine(line string) *refusal.Refusal {
	method, rest, ok := strings.Cut(line, " ")
	target, version, ok2 := strings.Cut(rest, " ")
	switch {
	case !ok || !ok2 || !allToken(method) || len(method) > maxMethod:
		return badRequest("malformed request line")
	case method == "PRI":
		return badRequest("HTTP/2 without TLS")
	case version != "HTTP/1.1":
		return badRequest("not HTTP/1.1")
	case method == "CONNECT" || method == "TRACE":
		return &refusal.Refusal{Reason: firewall.ReasonBadRequest, Detail: "the method " + method, Status: 405}
	case !strings.HasPrefix(target, "/"):
		return badRequest("the request target is not a path")
	}
	for i := range len(target) {
		if c := target[i]; c <= ' ' || c >= 0x7f || c == '#' {
			return badRequest("the byte %#02x in the request target", c)
		}
	}
	req.method, req.target = method, target
	return nil
}

func parseField(line string) (field, *refusal.Refusal) {
	name, value, ok := strings.Cut(line, ":")
	switch {
	case line[0] == ' ' || line[0] == '\t':
		return field{}, badRequest("a folded field")
	case !ok || !allToken(name):
		return field{}, badRequest("a malformed field name")
	}
	value = strings.Trim(value, " \t")
	for i := range len(value) {
		if c := value[i]; c < ' ' && c != '\t' || c == 0x7f {
			return field{}, badRequest("the byte %#02x in a field", c)
		}
	}
	return field{name, value}, nil
}

// parseHost wants exactly one Host field with a name and at most the port 80. What it
// keeps is not a part of the head, which the name outlives.
func (req *request) parseHost(all []field) *refusal.Refusal {
	values := valuesOf(all, "host")
	if len(values) != 1 {
		return badRequest("%d Host fields", len(values))
	}
	host, port, hasPort := strings.Cut(values[0], ":")
	if hasPort && port != "80" && allDigits(port) {
		req.shownHost = strings.Clone(firewall.Escape(values[0], maxShownHost))
		return badRequest("a Host with another port than 80")
	}
	if hasPort && port != "80" {
		host = values[0] // no port: perhaps an IPv6 literal, and no name
	}
	var err error
	if req.host, err = firewall.ParseName(strings.Clone(host)); err != nil {
		req.shownHost = strings.Clone(firewall.Escape(values[0], maxShownHost))
		return &refusal.Refusal{Reason: firewall.ReasonBadName, Detail: err.Error(), Status: 400}
	}
	req.shownHost = req.host.String()
	return nil
}

// parseFraming says where the body ends, in the one way on which all readers
// agree (RFC 9112, section 6.3).
func (req *request) parseFraming(all []field) *refusal.Refusal {
	lengths, codings := valuesOf(all, "content-length"), valuesOf(all, "transfer-encoding")
	req.framed = len(lengths)+len(codings) > 0
	switch {
	case len(lengths)+len(codings) > 1:
		return badRequest("%d Content-Length and %d Transfer-Encoding fields", len(lengths), len(codings))
	case len(codings) == 1 && !strings.EqualFold(codings[0], "chunked"):
		return badRequest("a transfer coding other than chunked")
	case len(codings) == 1:
		req.length = chunked
	case len(lengths) == 1:
		n, err := strconv.ParseInt(lengths[0], 10, 64)
		if err != nil || !allDigits(lengths[0]) {
			return badRequest("a malformed Content-Length")
		}
		req.length = n
	}
	return nil
}

// pick keeps the fields that are passed on and heeds those that are for the gate.
func (req *request) pick(all []field) *refusal.Refusal {
	nominated := make(map[string]bool)
	for _, v := range valuesOf(all, "connection") {
		for token := range strings.SplitSeq(v, ",") {
			nominated[strings.ToLower(strings.Trim(token, " \t"))] = true
		}
	}
	req.close = nominated["close"]
	for _, f := range all {
		name := strings.ToLower(f.name)
		kin := strings.ReplaceAll(name, "_", "-") // some servers read the one as the other
		switch {
		case kin != name && ours[kin]:
			return badRequest("the field %s", firewall.Escape(f.name, maxShownHost))
		case name == "upgrade" && !onlyHTTP2(f.value):
			return badRequest("an upgrade to another protocol")
		case name == "expect" && !strings.EqualFold(f.value, "100-continue"):
			return &refusal.Refusal{Reason: firewall.ReasonBadRequest, Detail: "an unknown expectation", Status: 417}
		case name == "expect":
			req.expect = true
		case ours[name] || nominated[name] || isForwarding(kin):
		default:
			req.fields = append(req.fields, f)
		}
	}
	return nil
}

// onlyHTTP2 reports whether an upgrade is to HTTP/2 alone, without which a client goes
// on in HTTP/1.1. What asks for another protocol cannot do without it.
func onlyHTTP2(protocols string) bool {
	for p := range strings.SplitSeq(protocols, ",") {
		if !strings.EqualFold(strings.Trim(p, " \t"), "h2c") {
			return false
		}
	}
	return true
}

// ours are the fields that concern one connection only, and those that the gate
// writes itself.
var ours = map[string]bool{
	"connection": true, "content-length": true, "expect": true, "host": true, "http2-settings": true,
	"keep-alive": true, "proxy-authenticate": true, "proxy-authorization": true, "proxy-connection": true,
	"te": true, "trailer": true, "transfer-encoding": true, "upgrade": true,
}

// isForwarding reports whether a field claims to come from a proxy: servers
// take from such fields who asked, or for which host.
func isForwarding(name string) bool {
	return forwarding[name] || strings.HasPrefix(name, "x-forwarded-") || strings.HasPrefix(name, "x-original-")
}

var forwarding = map[string]bool{
	"forwarded": true, "via": true, "x-forwarded": true, "x-real-ip": true, "x-host": true,
	"x-http-host-override": true, "x-rewrite-url": true, "client-ip": true, "x-client-ip": true,
	"x-cluster-client-ip": true, "true-client-ip": true, "cf-connecting-ip": true, "fastly-client-ip": true,
}

// repeatable reports whether sending the request twice is the same as sending it
// once, and no byte of it could be taken for another request.
func (req *request) repeatable() bool {
	return !req.framed && (req.method == "GET" || req.method == "HEAD" || req.method == "OPTIONS")
}

// valuesOf gives the values of all fields of that lower-case name.
func valuesOf(all []field, name string) (values []string) {
	for _, f := range all {
		if len(f.name) == len(name) && strings.EqualFold(f.name, name) {
			values = append(values, f.value)
		}
	}
	return values
}

// isToken reports whether c may stand in a method or field name (RFC 9110,
// section 5.6.2).
func isToken(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c|0x20 && c|0x20 <= 'z' || strings.IndexByte("!#$%&'*+-.^_`|~", c) >= 0
}

func allToken(s string) bool {
	for i := range len(s) {
		if !isToken(s[i]) {
			return false
		}
	}
	return s != ""
}

func allDigits(s string) bool {
	return s != "" && strings.Trim(s, "0123456789") == ""
}
