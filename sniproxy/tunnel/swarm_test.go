package tunnel

import (
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"sallyport/firewall"
	"sallyport/firewall/account"
	"sallyport/sniproxy/admission"
	"sallyport/sniproxy/testnet"
)

// Ten thousand clients of one run each send the largest hello but for its last
// byte, and stay. The run's caps hold, and another run does not notice.
//
// probe: S20
// oracle: the server's counts and the process's memory and descriptors meanwhile; the
// records, one of each client that was turned away; the tunnels of another run
func TestTunnelSwarm(t *testing.T) {
	const clients, workers = 10_000, 16
	testnet.NoLeak(t)
	hello := testnet.Record(testnet.Padded("site.example", maxHello-100))
	hello = hello[:len(hello)-1]
	c := newCell(t, "strict", func(s *server) { s.HelloTimeout = time.Hour })
	quiet, far := newTunnelCell(t, nil)
	quiet.open(far)

	before, fds := testnet.Memory(), testnet.Descriptors(t)
	var left, peak atomic.Int64
	var swarm, waiting sync.WaitGroup
	left.Store(clients)
	for range workers {
		swarm.Go(func() {
			for left.Add(-1) >= 0 {
				conn, err := net.DialTimeout("tcp", c.tls, testnet.Patience)
				if err != nil {
					t.Error(err)
					return
				}
				_, _ = conn.Write(hello) // fails where it is turned away meanwhile
				for open, old := c.server.Open(), peak.Load(); open > old && !peak.CompareAndSwap(old, open); old = peak.Load() {
				}
				waiting.Go(func() { // until the gate lets go of it
					_, _ = io.Copy(io.Discard, conn)
					conn.Close()
				})
			}
		})
	}
	swarm.Wait()
	var records []account.Record
	testnet.Eventually(t, "every client to be held or turned away", func() bool {
		records = c.Records()
		away := int64(0)
		for _, r := range records {
			away += max(r.Count, 1)
		}
		return away+c.server.Open() == clients
	})
	quiet.open(far)

	open, held := c.server.Open(), c.server.HeadBytes()
	if p := peak.Load(); open < 1 || p > admission.DefaultMaxConns+1 { // one may just be turned away
		t.Errorf("%d connections are open, %d were at once; want at most %d", open, p, admission.DefaultMaxConns)
	}
	if held > admission.SharedBytes || held == 0 {
		t.Errorf("%d bytes are held, want at most %d, and some", held, admission.SharedBytes)
	}
	if n := testnet.Descriptors(t) - fds; n > 3*admission.DefaultMaxConns {
		t.Errorf("%d descriptors more than before", n)
	}
	kernel := testnet.SocketMemory(t, []string{c.tls}, nil)
	if n := testnet.Memory() - before; n+kernel > 3*admission.SharedBytes || n < held {
		t.Errorf("%d bytes more than before, and %d of the kernel's for the gate's sockets", n, kernel)
	}
	for _, r := range records {
		if r.Verdict != firewall.Deny || r.Reason != firewall.ReasonLimit || r.Upstream.IsValid() {
			t.Fatalf("record %+v", r)
		}
	}
	c.End()
	waiting.Wait()
	if held := c.server.HeadBytes(); held != 0 || len(c.Dials()) != 0 {
		t.Errorf("%d bytes on account at the end, dialled %v", held, c.Dials())
	}
	quiet.open(far)
}
