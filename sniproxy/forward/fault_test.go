package forward

import (
	"bufio"
	"errors"
	"io"
	"net/http"
	"testing"

	"sallyport/firewall"
	"sallyport/firewall/account"
	"sallyport/sniproxy/admission"
	"sallyport/sniproxy/testnet"
)

// A body the sending of which has failed ends its exchange: neither side takes the
// part for the whole, and the record says whose fault it was.
func TestSenderPanic(t *testing.T) {
	testnet.NoLeak(t)
	c := newCell(t, "strict", nil)
	far := testnet.NewCanary(t)
	client, up := testnet.Dial(t, far.Addr), testnet.Dial(t, far.Addr)
	far.Next(t)
	upstreamEnd := far.Next(t)
	v := newService(&c.server.Dialer, Page{})
	v.Join(&admission.Service{Cell: &c.server.Cell, Kind: account.KindHTTP})
	h := &conn{v: v, client: client,
		br: bufio.NewReader(brokenReader{}), in: admission.NewHeadBuffer(&c.server.Cell)}
	meter, _ := c.server.Metered().Reach(testnet.ParseName(t, "site.example"), c.server.Policy.Decide(testnet.ParseName(t, "site.example"), Port))
	h.up = newUpstream(&c.server.Cell, &exchange{up: up, Flow: admission.Flow{Meter: meter}})
	more, r, again := h.exchange(&request{method: http.MethodPost, length: 10, framed: true}, false)
	if more || again || r == nil || r.Reason != firewall.ReasonFault {
		t.Errorf("more %v, again %v, %+v", more, again, r)
	}
	if _, err := upstreamEnd.Read(make([]byte, 1)); err == nil || errors.Is(err, io.EOF) {
		t.Errorf("the upstream sees %v, want a cut", err)
	}
	client.Close()
}

// A panic anywhere in the handling of a request leaves its record, one, and nothing
// of it behind.
func TestRequestPanic(t *testing.T) {
	testnet.NoLeak(t)
	calls := 0
	c := newCell(t, "strict", func(s *server) {
		p := s.Policy
		s.Current = func() *firewall.Policy {
			if calls++; calls == 3 { // a change of policy is looked for once the host is reached
				panic("a test")
			}
			return p
		}
	})
	k := testnet.NewCanary(t)
	c.Origin("127.0.0.1:80", k.Addr)
	client := testnet.Dial(t, c.http)
	testnet.Send(t, client, []byte("GET / HTTP/1.1\r\nHost: site.example\r\n\r\n"))
	_, _ = io.ReadAll(client)
	if r := c.Last(1); r.Verdict != firewall.Deny || r.Reason != firewall.ReasonFault || r.Host != "site.example" {
		t.Errorf("record %+v", r)
	}
	testnet.Eventually(t, "the connection to be counted out", func() bool { return c.server.Open() == 0 })
	c.End()
	if c.server.Standing() != 0 {
		t.Error("an exchange is left behind")
	}
}

// A brokenReader panics.
type brokenReader struct{}

func (brokenReader) Read([]byte) (int, error) { panic("a test") }
