package sniproxy

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"

	"sallyport/firewall"
)

// The caps on what an upstream may put before a response.
const (
	maxResponseHead  = 256 << 10
	maxInformational = 8
)

// An upstream is the connection to the host of a request, kept for as long as
// requests to the same host follow.
type upstream struct {
	name   firewall.Name
	policy *firewall.Policy // under which it was dialled
	addr   netip.AddrPort
	conn   *net.TCPConn
	meter  *firewall.ConnMeter
	br     *bufio.Reader

	room           int64 // bytes that may still come, while limited
	limited        bool
	sent, received int64
}

func newUpstream(f *flow) *upstream {
	u := &upstream{name: f.name, policy: f.policy, addr: f.upstream, conn: f.up, meter: f.meter}
	u.br = bufio.NewReader(u)
	return u
}

var errHeadTooLong = fmt.Errorf("a response head of over %d bytes", maxResponseHead)

// Read counts, and bounds what net/http would read without a bound. What is over
// budget is not given out.
func (u *upstream) Read(p []byte) (int, error) {
	if u.limited && u.room <= 0 {
		return 0, errHeadTooLong
	}
	if u.limited && int64(len(p)) > u.room {
		p = p[:u.room]
	}
	n, err := u.conn.Read(p)
	u.room -= int64(n)
	u.received += int64(n)
	if !u.meter.Took(false, n) {
		reset(u.conn)
		return 0, errBudget
	}
	return n, err
}

// Write counts. What is over budget is not sent, and ends the connection: the
// upstream must not take the part for the whole.
func (u *upstream) Write(p []byte) (int, error) {
	if !u.meter.Took(true, len(p)) {
		reset(u.conn)
		return 0, errBudget
	}
	n, err := u.conn.Write(p)
	u.sent += int64(n)
	return n, err
}

// response reads the final response to a request. Interim ones are given to
// interim, but for 100: the gate answers expectations itself.
func (u *upstream) response(method string, interim func(*http.Response) error) (*http.Response, error) {
	for range maxInformational {
		u.limited, u.room = true, maxResponseHead
		resp, err := http.ReadResponse(u.br, &http.Request{Method: method})
		u.limited = false
		switch {
		case err != nil:
			return nil, fmt.Errorf("reading the upstream's response: %w", err)
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
