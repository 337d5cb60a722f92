package tunnel

import (
	"io"
	"net/netip"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	"sallyport/sniproxy/admission"
	"sallyport/sniproxy/testnet"
)

// The cells have turns one after the other, whichever has more tunnels; those of
// one cell have theirs in order. One that was silent for a round goes first, one
// that had a turn of it does not.
func TestTurns(t *testing.T) {
	var ts schedule
	name := map[*tunnel]string{}
	services := map[byte]*service{'a': {}, 'b': {}, 'c': {}}
	tunnels := map[string]*tunnel{}
	add := func(names string) {
		for n := range strings.FieldsSeq(names) {
			if tunnels[n] == nil {
				tunnels[n] = &tunnel{v: services[n[0]]}
				name[tunnels[n]] = n
			}
			ts.add(tunnels[n])
		}
	}
	var got []string
	take := func(n int) {
		for range n {
			got = append(got, name[ts.take()])
		}
	}
	add("a1 a2 a3 a4 b1 c1 c2 a1 b1") // the last two wait already
	take(2)
	add("b1 b2 a1")
	take(8)
	if ts.waiting > 0 {
		t.Error("more than were added")
	}
	add("c1")
	take(1)
	add("a1 a2 a3 a4 b1")
	take(1)
	add("c1")
	take(3)
	add("c1") // has had its turn
	take(1)
	add("b1") // has had none since a
	take(3)
	if s, want := strings.Join(got, " "), "a1 b1 c1 a2 b1 c2 a3 b2 a4 a1 c1 a1 b1 c1 a2 c1 b1 a3 a4"; s != want || ts.waiting > 0 {
		t.Errorf("turns\n%s, want\n%s", s, want)
	}
}

// A connection of one cell is dialled before the loop has moved much of the bulk
// of another one, however many tunnels have some: it is counted what moves from
// when the connection and its hello are there until it is reached out for.
func TestBulkLetsOthersBegin(t *testing.T) {
	testnet.NoLeak(t)
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // one loop for both
	const tunnels, rounds = 48, 5
	busy, far := newTunnelCell(t, nil)
	var shared *mover
	var at atomic.Int64
	k := testnet.NewCanary(t)
	quiet := newCell(t, "strict", func(s *server) {
		s.Route = func(netip.AddrPort) netip.AddrPort { // on the loop
			at.Store(int64(shared.moved))
			return netip.MustParseAddrPort(k.Addr)
		}
	})
	for range tunnels {
		client, up := busy.open(far)
		go func() {
			for b := make([]byte, 1<<20); ; {
				if _, err := up.Write(b); err != nil {
					return
				}
			}
		}()
		go func() { _, _ = io.Copy(struct{ io.Writer }{io.Discard}, client) }()
	}
	workers := admission.Running()
	if len(workers) != 1 {
		t.Errorf("%d loops", len(workers))
	}
	shared = workers[0].Work.(*mover)
	const most = 4 * (sliceBytes + 2*turnBytes)
	for range rounds {
		blocked, resume := make(chan int64), make(chan struct{})
		shared.Post(func() {
			blocked <- int64(shared.moved)
			<-resume
		})
		before := <-blocked
		client := testnet.Dial(t, quiet.tls)
		testnet.Send(t, client, testnet.HelloFor("site.example"))
		close(resume)
		testnet.ReadN(t, k.Next(t), len(testnet.HelloFor("site.example")))
		if n := at.Load() - before; n > most {
			t.Errorf("%d bytes of bulk were moved first, want %d at most", n, most)
		}
		client.Close()
	}
	moves := make(chan bool)
	testnet.Eventually(t, "bulk, as a control", func() bool {
		shared.Post(func() { moves <- int64(shared.moved) > at.Load()+10*most })
		return <-moves
	})
	busy.End()
	quiet.End()
}
