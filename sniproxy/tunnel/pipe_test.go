package tunnel

import (
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"sallyport/firewall/account"
	"sallyport/sniproxy/admission"
	"sallyport/sniproxy/socket"
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
	c.End()
	through := newCell(t, "strict", func(s *server) { s.Record = func(account.Record) { over <- struct{}{} } })
	for from, to := range c.Origins() {
		through.Origin(from.String(), to)
	}
	gate := testing.AllocsPerRun(100, func() {
		openBench(t, through, hello).Close()
		<-over
	})
	for _, addr := range c.Origins() {
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

// A cell whose tunnels nobody reads from keeps no more pipes than its own, and no
// other cell has to do with small ones.
func TestPipesOfACell(t *testing.T) {
	testnet.NoLeak(t)
	account := admission.NewParked(1 << 30)
	share := func(s *server) { s.Parked = account }
	c, k := newTunnelCell(t, share)
	var floods sync.WaitGroup
	for range 3 * maxCellPipes {
		_, up := c.open(k)
		testnet.Flood(&floods, up)
	}
	count := func() (n int) {
		all, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range all {
			fd, _ := strconv.Atoi(e.Name())
			if size, err := unix.FcntlInt(uintptr(fd), unix.F_GETPIPE_SZ, 0); err == nil && size >= pipeBytes {
				n++
			}
		}
		return n
	}
	var last int64
	testnet.Eventually(t, "all to stand", func() bool {
		was := last
		last = account.Held()
		return was == last && last > 3*maxCellPipes*socket.ClientBytes
	})
	if n := count(); n > 2*(maxCellPipes+maxIdlePipes) {
		t.Errorf("%d ends of pipes, want at most two for each of %d", n, maxCellPipes+maxIdlePipes)
	}
	c.End()
	floods.Wait()
}
