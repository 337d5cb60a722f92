package sniproxy

import (
	"fmt"
	"testing"
	"time"

	"sallyport/firewall"
	"sallyport/sniproxy/resolve"
	"sallyport/sniproxy/testnet"
)

// The answer to a second look-up (rebinding) never reaches a dial unjudged.
//
// probe: R4
// oracle: the addresses that were dialled, and the records
func TestRebinding(t *testing.T) {
	c := newCell(t, "open", nil)
	for i, answer := range []string{"1.1.1.1", "10.0.0.1"} {
		c.Resolver.Set("rebind.example", answer)
		testnet.Send(t, testnet.Dial(t, c.tls), testnet.Record(testnet.Message(testnet.SNI("rebind.example"))))
		r := c.Last(i + 1)
		if want := []firewall.Reason{firewall.ReasonDial, firewall.ReasonAddress}[i]; r.Reason != want {
			t.Errorf("record %+v", r)
		}
	}
	if got := fmt.Sprint(c.Dials()); got != "[1.1.1.1:443]" {
		t.Errorf("dialled %s", got)
	}
}

// What the cache holds is judged at each use: an address that one policy admits
// is no verdict for the next connection.
//
// probe: R4
// oracle: the addresses that were dialled, and the records
func TestCachedAnswerIsJudged(t *testing.T) {
	s := testnet.StartDNS(t, "inner.example. 300 IN A 10.0.0.7\nfine.example. 300 IN A 1.1.1.1\n")
	cache, err := resolve.NewCache(&resolve.Client{Servers: []resolve.Server{resolve.UDPServer(s.Addr)}}, 8, 5*time.Second, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 2 {
		c := newCell(t, "open", func(s *Server) { s.Resolver = cache })
		testnet.Send(t, testnet.Dial(t, c.tls), testnet.Record(testnet.Message(testnet.SNI("inner.example"))))
		if r := c.Last(1); r.Reason != firewall.ReasonAddress || len(c.Dials()) != 0 {
			t.Errorf("use %d: %+v, dialled %v", i, r, c.Dials())
		}
		testnet.Send(t, testnet.Dial(t, c.tls), testnet.Record(testnet.Message(testnet.SNI("fine.example"))))
		if r := c.Last(2); r.Reason != firewall.ReasonDial || r.Upstream.Addr().String() != "1.1.1.1" {
			t.Errorf("control %d: %+v", i, r)
		}
	}
	if got := s.Questions(); len(got) != 4 {
		t.Errorf("asked %q, want each name once for A and AAAA", got)
	}
}
