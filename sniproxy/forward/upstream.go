package forward

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"

	"sallyport/firewall"
	"sallyport/firewall/account"
	"sallyport/sniproxy/admission"
	"sallyport/sniproxy/socket"
)

// errBudget ends an exchange; the meter of its connection knows why.
var errBudget = errors.New("over budget")

// The caps on what an upstream may put before a response.
const (
	maxResponseHead   = 256 << 10
	maxResponseFields = 256 // as parsed, each takes many times its bytes
	maxInformational  = 8
)

// headCost is how often what a response head holds is in memory: as it was read,
// and written anew.
const headCost = 3

// An upstream is the connection to the host of a request, kept for as long as
// requests to the same host follow.
type upstream struct {
	name   firewall.Name
	policy *firewall.Policy // under which it was dialled
	addr   netip.AddrPort
	conn   *net.TCPConn
	meter  *account.ConnMeter
	br     *bufio.Reader

	cell     *admission.Cell // has an account of heads
	limited  bool            // a head is being read
	head     int             // bytes of it
	lines    int             // of it
	reserved int             // bytes of the account, until freeHead

	sent, received int64
}

func newUpstream(c *admission.Cell, f *exchange) *upstream {
	u := &upstream{cell: c, name: f.Name, policy: f.Policy, addr: f.Upstream, conn: f.up, meter: f.Meter}
	u.br = bufio.NewReader(u)
	return u
}

// Why a response head is not read to its end.
var (
	errHeadTooLong = fmt.Errorf("a response head of over %d bytes", maxResponseHead)
	errHeadFields  = fmt.Errorf("a response head of over %d fields", maxResponseFields)
	errHeadsHeld   = errors.New("too many long response heads at once")
)

// Read counts, and bounds what net/http would read without a bound. What is over
// budget is not given out.
func (u *upstream) Read(p []byte) (int, error) {
	if u.limited {
		switch {
		case u.head >= maxResponseHead:
			return 0, errHeadTooLong
		case u.lines > maxResponseFields+1: // of the status, too
			return 0, errHeadFields
		}
		p = p[:min(len(p), maxResponseHead-u.head)]
	}
	n, err := u.conn.Read(p)
	u.received += int64(n)
	if !u.meter.Count(false, n) {
		socket.ResetConn(u.conn)
		return 0, errBudget
	}
	if u.limited && !u.reserve(p[:n]) {
		return 0, errHeadsHeld
	}
	return n, err
}

// reserve takes memory of the cell's for a piece of a head, but for the first.
func (u *upstream) reserve(piece []byte) bool {
	u.lines += bytes.Count(piece, []byte("\n"))
	u.head += len(piece)
	more := headCost*(u.head-admission.HeadBytes) - u.reserved
	if more <= 0 {
		return true
	}
	if !u.cell.Reserve(more) {
		return false
	}
	u.reserved += more
	return true
}

// freeHead gives back what the heads of an exchange have taken.
func (u *upstream) freeHead() {
	u.cell.Release(u.reserved)
	u.reserved = 0
}

// Write counts. What is over budget is not sent, and ends the connection: the
// upstream must not take the part for the whole.
func (u *upstream) Write(p []byte) (int, error) {
	return u.writePatiently(p, func() bool { return false })
}

// writePatiently is Write that asks whether to go on when a deadline has passed.
func (u *upstream) writePatiently(p []byte, more func() bool) (n int, err error) {
	if !u.meter.Count(true, len(p)) {
		socket.ResetConn(u.conn)
		return 0, errBudget
	}
	for {
		m, err := u.conn.Write(p[n:])
		n += m
		u.sent += int64(m)
		if !errors.Is(err, os.ErrDeadlineExceeded) || !more() {
			return n, err
		}
	}
}

// response reads the final response to a request. Interim ones are given to
// interim, but for 100: the gate answers expectations itself.
func (u *upstream) response(method string, interim func(*http.Response) error) (*http.Response, error) {
	for range maxInformational {
		u.limited, u.head, u.lines = true, 0, 0
		resp, err := http.ReadResponse(u.br, &http.Request{Method: method})
		u.limited = false
		switch {
		case err != nil:
			return nil, fmt.Errorf("reading the upstream's response: %w", err)
		case fields(resp) > maxResponseFields:
			return nil, errHeadFields
		case resp.StatusCode == http.StatusSwitchingProtocols:
			return nil, errors.New("the upstream changed the protocol")
		case resp.StatusCode >= 200:
			return resp, nil
		case resp.StatusCode == http.StatusContinue:
		default:
			if err := interim(resp); err != nil {
				return nil, err
			}
		}
	}
	return nil, errors.New("too many interim responses")
}

// fields counts those of a head.
func fields(resp *http.Response) (n int) {
	for _, values := range resp.Header {
		n += len(values)
	}
	return n
}
