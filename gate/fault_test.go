package gate

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"sallyport/firewall"
	"sallyport/firewall/account"
	"sallyport/sniproxy/resolve"
)

// A fault in the code that reads a hostile answer, which runs on goroutines of its
// own, is felt by the connection that it is about and by no other cell. It is on
// record, counted, and in the log.
//
// probe: S23
// oracle: the receipts and tunnels of both cells, the metrics and the log
func TestFaultIsOneConnections(t *testing.T) {
	var broken atomic.Bool
	g := start(t, upstream(t), func(d *Daemon) {
		d.Resolver.(*resolve.Client).Observe = func(resolve.Server, time.Duration, bool) {
			if broken.Load() {
				panic("a test")
			}
		}
	})
	g.lease(t, "c1", cellLease(1, "run-1", "strict"))
	g.lease(t, "c2", cellLease(2, "run-2", "strict"))
	stands, err := g.tunnel(t, 2, "www.site.example")
	if err != nil {
		t.Fatal(err)
	}
	broken.Store(true)
	if _, err := g.tunnel(t, 1, "www.site.example"); err == nil {
		t.Error("a tunnel although nothing was resolved")
	}
	broken.Store(false)
	if err := echo(stands); err != nil {
		t.Errorf("the tunnel of the other cell: %v", err)
	}
	for n := range byte(2) {
		if _, err := g.tunnel(t, n+1, "www.site.example"); err != nil {
			t.Errorf("control: cell %d: %v", n+1, err)
		}
	}
	const counted = `sallyport_decisions_total{kind="tls",policy="strict",reason="gate_fault",verdict="deny"} 1`
	if m := g.metrics(t); !strings.Contains(m, counted) {
		t.Errorf("the metrics lack %s", counted)
	}
	if n := count(g.release(t, "c1").Receipt, account.KindTLS, "www.site.example", firewall.ReasonFault); n != 1 {
		t.Errorf("%d faults in the receipt, want 1", n)
	}
	if log := g.log.String(); !strings.Contains(log, "panicked") || !strings.Contains(log, "a test") {
		t.Errorf("the log does not tell of it:\n%s", log)
	}
}
