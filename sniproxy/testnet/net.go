// Package testnet is what tests of the tunnel and of the forwarder meet on loopback:
// clients and the hellos that they send, hosts on the far side, DNS servers. It knows
// nothing of the gate.
package testnet

import (
	"io"
	"net"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"sallyport/firewall"
)

// Patience bounds every wait of the tests; none of them takes that long.
const Patience = 20 * time.Second

// Eventually waits until ok says yes.
func Eventually(tb testing.TB, what string, ok func() bool) {
	tb.Helper()
	for end := time.Now().Add(Patience); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			tb.Fatalf("waited %v for %s", Patience, what)
		}
	}
}

// Dial connects to addr, for as long as Patience.
func Dial(tb testing.TB, addr string) *net.TCPConn {
	tb.Helper()
	c, err := net.DialTimeout("tcp", addr, Patience)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(Patience))
	return c.(*net.TCPConn)
}

// A Canary is a plain TCP listener on the far side that hands out its
// connections and counts them.
type Canary struct {
	Addr  string
	conns chan *net.TCPConn
	Count atomic.Int64
}

// NewCanary listens on a port of its own.
func NewCanary(tb testing.TB) *Canary {
	tb.Helper()
	return NewCanaryAt(tb, "127.0.0.1:0")
}

// NewCanaryAt listens on addr.
func NewCanaryAt(tb testing.TB, addr string) *Canary {
	tb.Helper()
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		tb.Fatal(err)
	}
	k := &Canary{Addr: ln.Addr().String(), conns: make(chan *net.TCPConn, 1024)}
	tb.Cleanup(func() { ln.Close() })
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			k.Count.Add(1)
			_ = c.SetDeadline(time.Now().Add(Patience))
			k.conns <- c.(*net.TCPConn)
		}
	}()
	return k
}

// Next returns the next connection that reaches it.
func (k *Canary) Next(tb testing.TB) *net.TCPConn {
	tb.Helper()
	select {
	case c := <-k.conns:
		tb.Cleanup(func() { c.Close() })
		return c
	case <-time.After(Patience):
		tb.Fatal("nothing reached the canary")
		return nil
	}
}

// ReadN reads n bytes.
func ReadN(tb testing.TB, r io.Reader, n int) []byte {
	tb.Helper()
	b := make([]byte, n)
	if _, err := io.ReadFull(r, b); err != nil {
		tb.Fatalf("reading %d bytes: %v", n, err)
	}
	return b
}

// Send writes b.
func Send(tb testing.TB, w io.Writer, b []byte) {
	tb.Helper()
	if _, err := w.Write(b); err != nil {
		tb.Fatal(err)
	}
}

// NoLeak checks at the end of the test that it left no goroutine behind.
func NoLeak(t *testing.T) {
	t.Helper()
	before := runtime.NumGoroutine()
	t.Cleanup(func() {
		Eventually(t, "all goroutines to end", func() bool { return runtime.NumGoroutine() <= before })
	})
}

// Reset cuts a connection, so that its peer sees no end.
func Reset(c *net.TCPConn) {
	_ = c.SetLinger(0)
	c.Close()
}

// ParseName is firewall.ParseName for a name that is right.
func ParseName(t *testing.T, s string) firewall.Name {
	t.Helper()
	n, err := firewall.ParseName(s)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// Listen listens on loopback.
func Listen(tb testing.TB) net.Listener {
	tb.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	return ln
}
