package dnsgate

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/miekg/dns"

	"sallyport/firewall"
	"sallyport/firewall/account"
	"sallyport/firewall/budget"
)

// A client from outside the prefix gets nothing and is recorded, and its flood
// costs the cell's own clients nothing.
//
// probe: X1
// oracle: what the stranger reads from its sockets, the record of it, and the answer
// that the cell's own client gets
func TestForeignClient(t *testing.T) {
	g := serve(t, Server{Policy: policy(t, "open"), Prefix: netip.MustParsePrefix("127.9.9.0/28"), Rate: 1, Burst: 2})
	msg := pack(t, question("allowed.example.", dns.TypeA))

	stranger := g.dial(t, "udp4") // from 127.0.0.1
	for range 50 {
		if _, err := stranger.Write(msg); err != nil {
			t.Fatal(err)
		}
	}
	r := g.waitFor(t, "the stranger", func(r account.Record) bool { return r.Reason == firewall.ReasonForeignClient })
	if r.Verdict != firewall.Deny || r.Client.Addr() != netip.MustParseAddr("127.0.0.1") {
		t.Errorf("record %+v", r)
	}
	stranger.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
	if _, err := stranger.Read(make([]byte, 512)); err == nil {
		t.Error("a stranger got an answer")
	}
	tcp := g.dial(t, "tcp4")
	if _, err := tcp.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("read as a stranger: %v, want a closed connection", err)
	}

	from := net.Dialer{LocalAddr: &net.UDPAddr{IP: net.IPv4(127, 9, 9, 3)}}
	own, err := from.Dial("udp4", g.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer own.Close()
	own.SetDeadline(time.Now().Add(10 * time.Second))
	if _, err := own.Write(msg); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 512)
	n, err := own.Read(buf)
	if err != nil {
		t.Fatalf("control: the cell's own client: %v", err)
	}
	m := new(dns.Msg)
	if err := m.Unpack(buf[:n]); err != nil {
		t.Fatal(err)
	}
	wantA(t, m, "allowed.example.")
	if err := g.stop(); err != nil {
		t.Fatal(err)
	}
	// 51 events of one stranger: a record at once, one at the end, and one a
	// second between them on a slow machine.
	records := g.take()
	if n := len(records); n > 10 {
		t.Errorf("%d records of one stranger's flood", n)
	}
	events := int64(0)
	for _, r := range records {
		if r.Reason == firewall.ReasonForeignClient {
			events += max(1, r.Count)
		}
	}
	if events != 51 {
		t.Errorf("the records count %d events of the stranger, want 51", events)
	}
}

// A flood is limited and counted; another cell does not notice.
//
// probe: D20
// oracle: the counts of answered and dropped queries in the records, and the answer
// that another cell gets meanwhile
func TestFlood(t *testing.T) {
	const burst, sent = 20, 500
	g := serve(t, Server{Policy: policy(t, "strict"), Rate: 0.001, Burst: burst})
	other := serve(t, Server{Policy: policy(t, "strict")})
	msg := pack(t, question("allowed.example.", dns.TypeA))
	c := g.dial(t, "udp4")
	for range sent {
		if _, err := c.Write(msg); err != nil {
			t.Fatal(err)
		}
	}
	g.waitFor(t, "the limit", func(r account.Record) bool { return r.Reason == firewall.ReasonLimit })
	other.alive(t)

	// The rate counts TCP too: the connection is closed.
	if m, err := exchange(g.dial(t, "tcp4"), msg); err == nil {
		t.Errorf("answered over TCP beyond the rate: %v", m)
	}
	if err := g.stop(); err != nil {
		t.Fatal(err)
	}
	allowed, limited, lines := 0, 0, 0
	for _, r := range g.take() {
		switch r.Reason {
		case firewall.ReasonListed:
			allowed++
		case firewall.ReasonLimit:
			var n int
			fmt.Sscan(r.Detail, &n)
			limited += n
			lines++
		default:
			t.Errorf("record %+v", r)
		}
	}
	if allowed > burst+1 || allowed == 0 {
		t.Errorf("%d queries answered, want 1 to %d", allowed, burst+1)
	}
	// The kernel may drop packets of a flood before the gate reads them.
	if limited == 0 || allowed+limited > sent+1 {
		t.Errorf("%d answered and %d dropped of %d", allowed, limited, sent+1)
	}
	if lines > 20 {
		t.Errorf("%d lines about one flood", lines)
	}
}

// A length that no query has counts as a query does, on the gate's rate and on the
// run's budget.
//
// probe: D20
// oracle: the counts of refused and dropped messages in the records
func TestFloodOfBadLengths(t *testing.T) {
	const most, sent = 20, 300
	for name, test := range map[string]struct {
		server Server
		over   firewall.Reason
	}{
		"rate":   {Server{Rate: 0.001, Burst: most}, firewall.ReasonLimit},
		"budget": {Server{Meter: account.NewMeter(budget.Budget{QueriesPerSecond: most})}, firewall.ReasonBudget},
	} {
		t.Run(name, func(t *testing.T) {
			test.server.Policy = policy(t, "strict")
			g := serve(t, test.server)
			start := time.Now()
			for range sent {
				c := g.dial(t, "tcp4")
				if _, err := c.Write([]byte{0, 0}); err != nil {
					t.Fatal(err)
				}
				_, _ = c.Read(make([]byte, 1)) // its end
				c.Close()
			}
			within := most * (2 + int(time.Since(start)/time.Second))
			if err := g.stop(); err != nil {
				t.Fatal(err)
			}
			got := map[firewall.Reason]int64{}
			lines := 0
			for _, r := range g.take() {
				got[r.Reason] += max(r.Count, 1)
				lines++
			}
			if bad := got[firewall.ReasonBadQuery]; bad < most || bad > int64(within) || bad+got[test.over] != sent || lines > 2*within+20 {
				t.Errorf("%v in %d records", got, lines)
			}
		})
	}
}
