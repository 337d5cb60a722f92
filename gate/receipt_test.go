package gate

import (
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"testing"

	"sallyport/firewall"
	"sallyport/firewall/account"
)

// A run that asks for more names than a receipt has rows, all of them refused, does
// not hide what it sends afterwards, and every one of its decisions is in the sum.
//
// probe: X16
// oracle: the receipt: the row of the host that was reached, with its bytes, and the
// count of decisions over rows and overflow
func TestReceiptFlood(t *testing.T) {
	const flood, workers, sent = 4200, 16, 100_000
	g := start(t, upstream(t), nil)
	g.lease(t, "c1", cellLease(1, "run-1", "strict"))
	var next atomic.Int64
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for i := next.Add(1); i <= flood; i = next.Add(1) {
				c, err := g.dialCell("tcp4", 1, 1, g.daemon.ports.http)
				if err != nil {
					t.Error(err)
					return
				}
				fmt.Fprintf(c, "GET / HTTP/1.1\r\nHost: x%d.nowhere.example\r\n\r\n", i)
				_, _ = io.ReadAll(c) // until it is refused, and so on record
				c.Close()
			}
		})
	}
	wg.Wait()
	c, err := g.tunnel(t, 1, "www.site.example")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Write(make([]byte, sent)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(c, make([]byte, sent)); err != nil {
		t.Fatal(err)
	}
	c.Close()

	r := g.release(t, "c1").Receipt
	var rows, decisions, up int64
	for _, h := range r.Hosts {
		decisions += h.Count
		if h.Verdict == firewall.Deny {
			rows++
		}
		if h.Host == "www.site.example" && h.Kind == account.KindTLS && h.Verdict == firewall.Allow {
			up = h.BytesUp
		}
	}
	if up < sent {
		t.Errorf("the receipt has %d bytes up for the host that was sent %d", up, sent)
	}
	if rows < 1000 || rows > 2048 {
		t.Errorf("%d rows of refusals, want many, and half of all at most", rows)
	}
	if decisions+r.Overflow != flood+1 {
		t.Errorf("%d decisions in rows and %d beyond, want %d in all", decisions, r.Overflow, flood+1)
	}
	if len(r.OverflowSums) != 1 || r.OverflowSums[0] != (account.VerdictSum{Verdict: firewall.Deny, Count: r.Overflow}) {
		t.Errorf("beyond the rows: %+v, want %d refusals", r.OverflowSums, r.Overflow)
	}
}
