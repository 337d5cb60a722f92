package gate

import (
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"sallyport/firewall"
	"sallyport/firewall/account"
	"sallyport/sniproxy/admission"
)

// A run opens tunnels to a listed server that sends without end and reads none of
// them. The gate keeps the memory that they hold within its account, cuts the worst
// and says so in the receipt; it shows in the metrics; and another run's tunnel works.
//
// probe: S24
// oracle: the metrics, the receipts of both runs, and the other run's tunnel
func TestStalledTunnelsAreCut(t *testing.T) {
	ln, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	const limit, tunnels, little = 32 << 20, 16, 64 << 10
	var sending sync.WaitGroup
	sending.Go(func() {
		for n := 1; ; n++ {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			sending.Go(func() {
				defer c.Close()
				_, err := c.Write(make([]byte, little))
				for b := make([]byte, 256<<10); err == nil && n <= tunnels; {
					_, err = c.Write(b)
				}
				_, _ = io.Copy(io.Discard, c)
			})
		}
	})
	g := start(t, ln.Addr().String(), func(d *Daemon) { d.Parked = admission.NewParked(limit) })
	g.lease(t, "c1", cellLease(1, "run-1", "strict"))
	g.lease(t, "c2", cellLease(2, "run-2", "strict"))
	for range tunnels {
		c := g.client(t, "tcp4", 1, g.daemon.ports.tls)
		if _, err := c.Write(hello(t, "www.site.example")); err != nil {
			t.Fatal(err)
		}
	}
	cut := func() int64 {
		c, err := g.Cell(t.Context(), "c1")
		if err != nil {
			t.Fatal(err)
		}
		return count(c.Receipt, account.KindTLS, "www.site.example", firewall.ReasonLimit)
	}
	for end := time.Now().Add(20 * time.Second); cut() == 0 || g.server.Parked.Held() > limit/4; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d tunnels are cut, %d bytes are held, want at most %d", cut(), g.server.Parked.Held(), limit/4)
		}
	}
	if n := cut(); n == tunnels {
		t.Error("all were cut, also those for which there is room")
	}
	for _, want := range []string{"sallyport_stalled_bytes ", "sallyport_stalled_bytes_limit 3.3554432e+07"} {
		if !strings.Contains(g.metrics(t), want) {
			t.Errorf("the metrics lack %s", want)
		}
	}
	reads := g.client(t, "tcp4", 2, g.daemon.ports.tls)
	if _, err := reads.Write(hello(t, "www.site.example")); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(reads, make([]byte, little)); err != nil {
		t.Errorf("the other run: %v", err)
	}
	reads.Close()
	if n := count(g.release(t, "c2").Receipt, account.KindTLS, "www.site.example", firewall.ReasonLimit); n != 0 {
		t.Errorf("%d tunnels of the other run were cut", n)
	}
	g.stop()
	ln.Close()
	sending.Wait()
}
