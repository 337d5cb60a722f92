package tunnel

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"sallyport/firewall"
	"sallyport/sniproxy/admission"
	"sallyport/sniproxy/testnet"
)

// Each end may finish sending while the other goes on.
func TestTunnelHalfClose(t *testing.T) {
	testnet.NoLeak(t)
	c, k := newTunnelCell(t, nil)
	for i, swap := range []bool{false, true} {
		a, b := c.open(k)
		if swap {
			a, b = b, a
		}
		testnet.Send(t, a, []byte("last words"))
		if err := a.CloseWrite(); err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(b); err != nil || string(got) != "last words" {
			t.Fatalf("got %q, %v", got, err)
		}
		big := make([]byte, 1<<20)
		_, _ = rand.Read(big)
		go func() {
			_, _ = b.Write(big)
			_ = b.CloseWrite()
		}()
		if got, err := io.ReadAll(a); err != nil || string(got) != string(big) {
			t.Fatalf("got %d bytes, %v", len(got), err)
		}
		c.Wait(i + 1)
	}
}

// A tunnel outlives silence longer than any deadline of the gate's.
func TestTunnelQuiet(t *testing.T) {
	const timeout = 50 * time.Millisecond
	c, k := newTunnelCell(t, func(s *server) { s.HelloTimeout = timeout })
	client, up := c.open(k)
	time.Sleep(5 * timeout)
	testnet.Send(t, up, []byte("token"))
	testnet.ReadN(t, client, 5)
	testnet.Send(t, client, []byte("ok"))
	testnet.ReadN(t, up, 2)
}

// An end that breaks breaks the other one, also after it closed its half.
func TestTunnelBreaks(t *testing.T) {
	testnet.NoLeak(t)
	c, k := newTunnelCell(t, nil)
	n := 0
	for _, halfFirst := range []bool{false, true} {
		for _, swap := range []bool{false, true} {
			a, b := c.open(k)
			if swap {
				a, b = b, a
			}
			if halfFirst {
				_ = a.CloseWrite()
				if _, err := io.ReadAll(b); err != nil {
					t.Fatal(err)
				}
			}
			testnet.Reset(a)
			// b must learn of it although it says nothing itself.
			_, err := b.Read(make([]byte, 1))
			for ; err == nil || errors.Is(err, io.EOF); _, err = b.Write([]byte("x")) {
				time.Sleep(time.Millisecond)
			}
			if !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, syscall.EPIPE) {
				t.Errorf("half first %v, swap %v: %v", halfFirst, swap, err)
			}
			n++
			c.Wait(n)
		}
	}
}

// A client that half-closed and then vanished frees a tunnel to a silent upstream.
func TestTunnelFreesAbandoned(t *testing.T) {
	c, k := newTunnelCell(t, nil)
	client, up := c.open(k)
	_ = client.CloseWrite()
	if _, err := io.ReadAll(up); err != nil {
		t.Fatal(err)
	}
	testnet.Reset(client)
	if r := c.Last(1); r.Verdict != firewall.Allow {
		t.Errorf("record %+v", r)
	}
	testnet.Eventually(t, "the connection to be counted out", func() bool { return c.server.Open() == 0 })
}

// A resolver or upstream that hangs does not hold up the end of a lease.
//
// probe: L11
// oracle: the server returns though the resolver hangs, and the record says why
func TestServeEndsWhileConnecting(t *testing.T) {
	testnet.NoLeak(t)
	hang := make(chan struct{})
	c := newCell(t, "strict", func(s *server) {
		s.Resolver = resolverFunc(func(ctx context.Context) ([]netip.Addr, error) {
			close(hang)
			<-ctx.Done()
			return nil, ctx.Err()
		})
	})
	testnet.Send(t, testnet.Dial(t, c.tls), testnet.Record(testnet.Message(testnet.SNI("site.example"))))
	<-hang
	c.End()
	if r := c.Last(1); r.Reason != firewall.ReasonResolve {
		t.Errorf("record %+v", r)
	}
}

type resolverFunc func(context.Context) ([]netip.Addr, error)

func (f resolverFunc) Resolve(ctx context.Context, _ firewall.Name) ([]netip.Addr, error) {
	return f(ctx)
}

// Long unfinished hellos share one bounded account; short ones need none of it.
//
// probe: S20
// oracle: the account of bytes held, and a short hello that reaches the far side
// meanwhile
func TestHelloMemory(t *testing.T) {
	const long = 350_000 // raw bytes held by each
	hello := testnet.CutRecords(testnet.Padded("site.example", 60_000), 1)[:long]
	c, k := newTunnelCell(t, func(s *server) { s.HelloTimeout = testnet.Patience })
	for range 40 {
		testnet.Send(t, testnet.Dial(t, c.tls), hello)
	}
	testnet.Eventually(t, "a hello to be refused for memory", func() bool {
		records := c.Records()
		for _, r := range records {
			if r.Reason != firewall.ReasonLimit {
				t.Fatalf("record %+v", r)
			}
		}
		return len(records) > 0
	})
	if held := c.server.HeadBytes(); held > admission.SharedBytes {
		t.Errorf("%d bytes held", held)
	}
	c.open(k) // a short one still passes
	c.End()
	if held := c.server.HeadBytes(); held != 0 {
		t.Errorf("%d bytes on account at the end", held)
	}
}
