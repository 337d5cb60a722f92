package forward

import (
	"bufio"
	"cmp"
	"errors"
	"io"
	"net"
	"net/http/httputil"
	"os"
	"strings"
	"sync"
	"time"

	"sallyport/firewall"
	"sallyport/internal/contain"
	"sallyport/sniproxy/admission"
	"sallyport/sniproxy/refusal"
	"sallyport/sniproxy/socket"
)

// defaultBodyIdle is how long a client may pause inside a request body, and how
// often it is looked for while the upstream pauses.
const defaultBodyIdle = 60 * time.Second

// copyBuffers hold those through which bodies are copied.
var copyBuffers = sync.Pool{New: func() any { b := make([]byte, 32<<10); return &b }}

// past is a deadline that ends a read at once.
var past = time.Unix(1, 0)

// A sender is the client's side of an exchange while the response is read: it
// sends the request body upstream, then watches whether the client goes away.
type sender struct {
	h    *conn
	up   *upstream
	sent chan struct{} // closed when the body is sent, or cannot be
	done chan struct{}

	// Set before sent is closed.
	complete bool
	fault    *refusal.Refusal // what was wrong with the client's body
	// Set before done is closed.
	gone  bool             // the client is gone
	crash *refusal.Refusal // the sender has panicked

	mu       sync.Mutex // guards stopping, the client's read and the upstream's write deadline
	stopping bool
}

func startSender(h *conn, req *request) *sender {
	s := &sender{h: h, up: h.up, sent: make(chan struct{}), done: make(chan struct{})}
	go s.run(req)
	return s
}

func (s *sender) run(req *request) {
	defer close(s.done)
	defer func() {
		if s.crash != nil || s.fault != nil || s.gone {
			socket.ResetConn(s.up.conn) // an upstream must not take a part for the whole
		}
	}()
	defer contain.To(s)
	func() {
		defer close(s.sent)
		s.complete, s.fault = s.sendBody(req)
	}()
	s.gone = s.gone || s.complete && s.clientGone()
}

func (s *sender) Panicked(err error) { s.crash = refusal.Fault(err) }

// finished reports whether the whole body was sent. An upstream may answer
// before; a moment's grace tells that from a body whose end is on its way.
func (s *sender) finished() bool {
	select {
	case <-s.sent:
	case <-time.After(50 * time.Millisecond):
		return false
	}
	return s.complete
}

// stop ends the sender and waits for it, but not for an upstream to take the rest
// of a body.
func (s *sender) stop() {
	s.mu.Lock()
	s.stopping = true
	_ = s.h.client.SetReadDeadline(past) // fails only where the connection is closed
	_ = s.up.conn.SetWriteDeadline(past)
	s.mu.Unlock()
	<-s.done
	_ = s.up.conn.SetWriteDeadline(time.Time{})
}

// deadline sets the client's read deadline unless the sender is to stop.
func (s *sender) deadline(t time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.stopping {
		_ = s.h.client.SetReadDeadline(t)
	}
}

// patience lets the upstream take its time for a piece of the body, as long as the
// sender need not stop and the client has not broken off: with a body on its way,
// there is nobody else who would notice.
func (s *sender) patience() (more bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopping {
		return false
	}
	if s.gone = socket.IsBroken(s.h.client); s.gone {
		return false
	}
	_ = s.up.conn.SetWriteDeadline(time.Now().Add(s.idle()))
	return true
}

func (s *sender) idle() time.Duration { return cmp.Or(s.h.v.bodyIdle, defaultBodyIdle) }

// clientGone waits until the client is gone, has sent more, or stop is called.
// A half-closed client is not gone: it may wait for its response.
func (s *sender) clientGone() bool {
	s.deadline(time.Time{})
	_, err := s.h.br.Peek(1)
	switch {
	case err == nil || errors.Is(err, os.ErrDeadlineExceeded):
		return false
	case errors.Is(err, io.EOF):
		return awaitFault(s.h.client)
	}
	return true
}

// sendBody copies the request body upstream, framed anew.
func (s *sender) sendBody(req *request) (complete bool, fault *refusal.Refusal) {
	switch req.length {
	case 0:
		return true, nil
	case chunked:
		bw := bufio.NewWriter(s)
		cw := httputil.NewChunkedWriter(bw)
		complete, fault = s.copyBody(httputil.NewChunkedReader(s.h.br), func(p []byte) error {
			if _, err := cw.Write(p); err != nil {
				return err
			}
			return bw.Flush()
		})
		if !complete || fault != nil {
			return complete, fault
		}
		if err := readTrailer(s.h.br); err != nil {
			return false, bodyFault(err)
		}
		_, err := io.WriteString(s, "0\r\n\r\n")
		return err == nil, nil
	default:
		body := &io.LimitedReader{R: s.h.br, N: req.length}
		complete, fault = s.copyBody(body, func(p []byte) error { _, err := s.Write(p); return err })
		if complete && body.N > 0 {
			return false, bodyFault(io.ErrUnexpectedEOF)
		}
		return complete, fault
	}
}

// Write sends a piece of the body upstream.
func (s *sender) Write(p []byte) (int, error) {
	if !s.patience() {
		return 0, os.ErrDeadlineExceeded
	}
	return s.up.writePatiently(p, s.patience)
}

// copyBody copies as much as there is, whenever there is some. An upstream that
// takes no more is no fault: its response may say why.
func (s *sender) copyBody(body io.Reader, write func([]byte) error) (complete bool, fault *refusal.Refusal) {
	buf := copyBuffers.Get().(*[]byte)
	defer copyBuffers.Put(buf)
	for {
		s.deadline(time.Now().Add(s.idle()))
		n, err := body.Read(*buf)
		if n > 0 {
			if err := write((*buf)[:n]); err != nil {
				return false, nil
			}
		}
		switch {
		case err == io.EOF:
			return true, nil
		case err != nil:
			return false, bodyFault(err)
		}
	}
}

func bodyFault(err error) *refusal.Refusal {
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return &refusal.Refusal{Reason: firewall.ReasonLimit, Detail: "the request body did not go on in time", Status: 408}
	case errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF):
		return &refusal.Refusal{Reason: firewall.ReasonBadRequest, Detail: "closed inside the request body", Status: 400}
	}
	return badRequest("malformed chunks: %s", firewall.Escape(err.Error(), maxShownHost))
}

// readTrailer drops the trailer fields of a chunked body (RFC 9112, section
// 7.1.2), up to and with the empty line.
func readTrailer(br *bufio.Reader) error {
	for size := 0; size < admission.HeadBytes; {
		line, err := br.ReadSlice('\n')
		switch {
		case err != nil:
			return err
		case string(line) == "\r\n":
			return nil
		case !strings.HasSuffix(string(line), "\r\n"):
			return errors.New("a line that ends without a carriage return")
		}
		size += len(line)
	}
	return errors.New("too long a trailer")
}

// awaitFault waits on a connection that has no more to read. It returns true
// once the kernel finds the connection broken, by a reset or because keep-alive
// went unanswered, and false when it is closed or its deadline passes.
func awaitFault(c *net.TCPConn) bool {
	raw, err := c.SyscallConn()
	if err != nil {
		return false
	}
	broken := false
	err = raw.Read(func(fd uintptr) bool {
		broken = socket.Fault(int(fd)) != nil
		return broken
	})
	if err != nil && !errors.Is(err, net.ErrClosed) && !errors.Is(err, os.ErrDeadlineExceeded) {
		return true
	}
	return broken
}
