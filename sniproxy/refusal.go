package sniproxy

import (
	"errors"
	"io"
	"net"
	"time"

	"sallyport/firewall"
	"sallyport/internal/contain"
)

// A refusal is why a connection or request goes no further: what the record
// says and how the client is told. A nil *refusal refuses nothing.
type refusal struct {
	reason firewall.Reason
	detail string         // for a person; holds no unescaped input
	alert  alert          // on 443; 0 sends none
	status int            // on 80; 0 sends none
	fault  *contain.Panic // what was contained, for the log; nil where nothing was
}

// alert is the description of a fatal TLS alert (RFC 8446, section 6).
type alert byte

// The alerts that the gate sends. What TLS clients print for them is the only
// explanation that a refused program gets: "access denied", "unrecognized name".
const (
	alertDecodeError      alert = 50
	alertAccessDenied     alert = 49
	alertInternalError    alert = 80
	alertMissingExtension alert = 109
	alertUnrecognizedName alert = 112
)

// record is the alert as a TLS record of its own. The version is the one that
// clients of every version accept before a ServerHello.
func (a alert) record() []byte {
	const recordAlert, fatal = 21, 2
	return []byte{recordAlert, 3, 3, 0, 2, fatal, byte(a)}
}

// maxDrain bounds what is read and dropped of what a refused client still sends,
// in bytes.
const maxDrain = 256 << 10

// lastWords sends msg and ends the connection so that the client can read it:
// closing at once, with bytes of the client unread, would make the kernel send a
// reset that overtakes msg. What the client still sends is read and dropped,
// within bounds.
func lastWords(c *net.TCPConn, msg []byte) {
	_ = c.SetDeadline(time.Now().Add(lingerTime))
	if _, err := c.Write(msg); err != nil {
		return
	}
	if err := c.CloseWrite(); err != nil {
		return
	}
	buf := copyBuffers.Get().(*[]byte)
	defer copyBuffers.Put(buf)
	for n := 0; n < maxDrain; {
		m, err := c.Read(*buf)
		if err != nil {
			return
		}
		n += m
	}
}

// readFault says why reading a client's hello or head came to no end. what
// names the thing that was read.
func readFault(err error, got int, what string, bad firewall.Reason) *refusal {
	var timeout net.Error
	switch {
	case errors.As(err, &timeout) && timeout.Timeout() && got == 0:
		return &refusal{reason: firewall.ReasonLimit, detail: "no " + what + " in time"}
	case errors.As(err, &timeout) && timeout.Timeout():
		return &refusal{reason: firewall.ReasonLimit, detail: "the " + what + " did not end in time", status: 408}
	case errors.Is(err, io.EOF) && got == 0:
		return &refusal{reason: bad, detail: "closed before a " + what}
	default:
		return &refusal{reason: bad, detail: "closed inside the " + what, status: 400}
	}
}

// A bound on the memory that hellos and heads make the gate hold: each connection
// has headBytes of its own, and what the connections of a cell need beyond that they
// share.
const (
	headBytes   = 4 << 10
	sharedBytes = 8 << 20
)

// reserve takes n bytes of the cell's shared memory for a hello or head, until it is
// sent on or refused; the caller gives them back with release.
func (s *Server) reserve(n int) bool {
	if s.held.Add(int64(n)) > sharedBytes {
		s.held.Add(-int64(n))
		return false
	}
	return true
}

func (s *Server) release(n int) { s.held.Add(-int64(n)) }
