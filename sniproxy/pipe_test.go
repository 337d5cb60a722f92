package sniproxy

import (
	"net"
	"os"
	"strings"
	"testing"

	"sallyport/firewall/account"
	"sallyport/sniproxy/testnet"
)

// maxConnAllocs bounds what the gate allocates for one tunnel from accept to
// record, the fake resolver included. It does not depend on
// the machine; raise it only for a reason.
const maxConnAllocs = 40

// hangUp waits for the end of an upstream's connection and closes its own.
func hangUp(conn net.Conn) { _, _ = conn.Read(make([]byte, 1)) }

// TestConnectionAllocs guards the allocations for each connection.
func TestConnectionAllocs(t *testing.T) {
	over := make(chan struct{}, 1)
	c, hello := benchCell(t, hangUp)
	c.end()
	through := newCell(t, "strict", func(s *Server) { s.Record = func(account.Record) { over <- struct{}{} } })
	through.mu.Lock()
	through.origins = c.origins
	through.mu.Unlock()
	gate := testing.AllocsPerRun(100, func() {
		openBench(t, through, hello).Close()
		<-over
	})
	for _, addr := range c.origins {
		c.tls = addr
	}
	direct := testing.AllocsPerRun(100, func() { openBench(t, c, hello).Close() })
	t.Logf("%v allocations, of which %v are the test's", gate, direct)
	if n := gate - direct; n > maxConnAllocs {
		t.Errorf("%v allocations for a connection, want at most %d", n, maxConnAllocs)
	}
}

// TestIdleTunnelHoldsNoPipe holds that tunnels which have moved bytes and rest
// have no pipe: at most those of the pool are open.
func TestIdleTunnelHoldsNoPipe(t *testing.T) {
	const tunnels = 2 * maxIdlePipes
	c, k := newTunnelCell(t, nil)
	before := pipeEnds(t)
	for range tunnels {
		client, up := c.open(k)
		testnet.Send(t, up, []byte("answer"))
		testnet.ReadN(t, client, 6)
		testnet.Send(t, client, []byte("question"))
		testnet.ReadN(t, up, 8)
	}
	testnet.Eventually(t, "the pipes to be given back", func() bool { return pipeEnds(t) <= before+2*maxIdlePipes })
}

// pipeEnds counts the descriptors of this process that are ends of pipes.
func pipeEnds(t *testing.T) (n int) {
	t.Helper()
	const dir = "/proc/self/fd"
	fds, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range fds {
		if to, err := os.Readlink(dir + "/" + fd.Name()); err == nil && strings.HasPrefix(to, "pipe:") {
			n++
		}
	}
	return n
}
