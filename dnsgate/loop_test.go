package dnsgate

import (
	"context"
	"net"
	"net/netip"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miekg/dns"

	"sallyport/firewall/account"
)

// descriptors is how many this process has open.
func descriptors(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

// newLoop is a loop that ends with the test, after its cells.
func newLoop(t *testing.T) *Loop {
	t.Helper()
	l, err := NewLoop()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Close)
	return l
}

// Cells come to a loop and go, while one of them is asked without pause. Those
// that stay are served, and what has ended leaves no descriptor.
func TestLoopOfManyCells(t *testing.T) {
	before := descriptors(t)
	t.Run("cells", func(t *testing.T) {
		loop := newLoop(t)
		stays := serve(t, Server{Policy: policy(t, "strict"), Loop: loop})
		var answered atomic.Int64
		flood(t, serve(t, Server{Policy: policy(t, "strict"), Loop: loop, Rate: 1e9, Burst: 1e9, Deliver: counter(&answered)}))
		for range 5 {
			var cells []*gate
			for range 10 {
				cells = append(cells, serve(t, Server{Policy: policy(t, "strict"), Loop: loop}))
			}
			for _, g := range cells {
				g.alive(t)
				g.alive(t)
			}
			for _, g := range cells {
				if err := g.stop(); err != nil {
					t.Error(err)
				}
				if n := len(g.take()); n != 2 {
					t.Errorf("%d records of 2 queries", n)
				}
			}
			stays.alive(t)
		}
	})
	if after := descriptors(t); after > before {
		t.Errorf("%d descriptors, %d before", after, before)
	}
}

// counter is a Server.Deliver that counts the records.
func counter(n *atomic.Int64) func([]account.Record) error {
	return func(records []account.Record) error {
		n.Add(int64(len(records)))
		return nil
	}
}

// flood sends queries to g until the test ends, and reads no answer.
func flood(t *testing.T, g *gate) {
	t.Helper()
	c, msg := g.dial(t, "udp4"), pack(t, question("allowed.example.", dns.TypeA))
	stop, stopped := make(chan struct{}), make(chan struct{})
	c.SetDeadline(time.Time{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			default:
				_, _ = c.Write(msg) // refused when g has ended
			}
		}
	}()
	t.Cleanup(func() {
		close(stop)
		<-stopped
	})
}

// A flood of one cell, all of which is answered or all of which is dropped,
// starves no other cell of the same loop.
func TestFloodOnSharedLoop(t *testing.T) {
	for name, flooded := range map[string]Server{
		"answered": {Rate: 1e9, Burst: 1e9},
		"dropped":  {Rate: 0.001, Burst: 1},
	} {
		t.Run(name, func(t *testing.T) {
			const asked = 200
			loop := newLoop(t)
			var records atomic.Int64
			flooded.Loop, flooded.Policy, flooded.Deliver = loop, policy(t, "strict"), counter(&records)
			other := serve(t, Server{Policy: policy(t, "strict"), Loop: loop})
			flood(t, serve(t, flooded))
			for records.Load() < 2 {
				time.Sleep(time.Millisecond)
			}
			for range asked {
				other.alive(t) // there is no second try
			}
			if n := len(other.take()); n != asked {
				t.Errorf("%d records of %d queries", n, asked)
			}
		})
	}
}

// When Serve has returned, in the middle of a flood, nothing of the cell goes on:
// no record comes, and nobody listens.
func TestServeEndsInFlight(t *testing.T) {
	loop := newLoop(t)
	var ended atomic.Bool
	var late, records atomic.Int64
	for range 20 {
		pc, err := net.ListenUDP("udp4", net.UDPAddrFromAddrPort(netip.MustParseAddrPort("127.0.0.1:0")))
		if err != nil {
			t.Fatal(err)
		}
		ln, err := net.Listen("tcp4", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		addr := pc.LocalAddr().String()
		s := Server{
			Policy: policy(t, "strict"), Answer: answerAddr, Prefix: netip.MustParsePrefix("127.0.0.1/32"),
			Log: noLog, Loop: loop, Rate: 1e9, Burst: 1e9,
			Deliver: func(r []account.Record) error {
				records.Add(int64(len(r)))
				if ended.Load() {
					late.Add(int64(len(r)))
				}
				return nil
			},
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		ended.Store(false)
		before := records.Load()
		go func() {
			err := s.Serve(ctx, pc, ln)
			ended.Store(true)
			done <- err
		}()
		g := &gate{addr: addr}
		t.Run("", func(t *testing.T) {
			flood(t, g)
			for records.Load() == before {
				time.Sleep(time.Millisecond)
			}
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
			again, err := net.ListenPacket("udp4", addr)
			if err != nil {
				t.Fatalf("the address is not free: %v", err)
			}
			again.Close()
		})
	}
	if n := late.Load(); n != 0 {
		t.Errorf("%d records after the end", n)
	}
}

// A loop that is closed under its cells ends their Serve with an error.
func TestLoopClosedUnderCells(t *testing.T) {
	loop, err := NewLoop()
	if err != nil {
		t.Fatal(err)
	}
	pc, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := Server{
		Policy: policy(t, "strict"), Answer: answerAddr, Prefix: netip.MustParsePrefix("127.0.0.1/32"),
		Log: noLog, Loop: loop, Record: func(account.Record) {},
	}
	done := make(chan error, 1)
	go func() { done <- s.Serve(context.Background(), pc, ln) }()
	loop.Close()
	select {
	case err := <-done:
		if err == nil {
			t.Error("no error")
		}
	case <-time.After(10 * time.Second):
		t.Fatal("Serve goes on")
	}
}
