package sniproxy

import (
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"sallyport/firewall"
)

// maxConnAllocs bounds what the gate allocates for one tunnel from accept to
// record, the test's dialler and fake resolver included. It does not depend on
// the machine; raise it only for a reason.
const maxConnAllocs = 80

// hangUp waits for the end of an upstream's connection and closes its own.
func hangUp(conn net.Conn) { _, _ = conn.Read(make([]byte, 1)) }

// TestConnectionAllocs guards the allocations for each connection.
func TestConnectionAllocs(t *testing.T) {
	over := make(chan struct{}, 1)
	c, hello := benchCell(t, hangUp)
	c.end()
	through := newCell(t, "strict", func(s *Server) { s.Record = func(firewall.Record) { over <- struct{}{} } })
	through.origins = c.origins
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

// TestPumpAllocs holds that bytes move without any allocation.
func TestPumpAllocs(t *testing.T) {
	from, src := pair(t)
	dst, to := pair(t)
	p, err := newPump(dst, src)
	if err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 1000)
	if n := testing.AllocsPerRun(100, func() {
		if _, err := from.Write(buf); err != nil {
			t.Fatal(err)
		}
		if n, err := p.next(); n != len(buf) || err != nil {
			t.Fatal(n, err)
		}
		if _, err := io.ReadFull(to, buf); err != nil {
			t.Fatal(err)
		}
	}); n > 0 {
		t.Errorf("%v allocations for a piece", n)
	}
}

// pair makes the two ends of a TCP connection.
func pair(t *testing.T) (a, b *net.TCPConn) {
	t.Helper()
	ln := listen(t)
	defer ln.Close()
	a = dialTCP(t, ln.Addr().String())
	far, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { far.Close() })
	return a, far.(*net.TCPConn)
}

// TestIdleTunnelHoldsNoPipe holds that tunnels which have moved bytes and rest
// have no pipe: at most those of the pool are open.
func TestIdleTunnelHoldsNoPipe(t *testing.T) {
	const tunnels = 2 * maxIdlePipes
	c, k := newTunnelCell(t, nil)
	before := pipeEnds(t)
	for range tunnels {
		client, up := c.open(k)
		send(t, up, []byte("answer"))
		readN(t, client, 6)
		send(t, client, []byte("question"))
		readN(t, up, 8)
	}
	eventually(t, "the pipes to be given back", func() bool { return pipeEnds(t) <= before+2*maxIdlePipes })
	pipes.mu.Lock()
	defer pipes.mu.Unlock()
	if n := len(pipes.idle); n == 0 || n > maxIdlePipes {
		t.Errorf("%d pipes in the pool", n)
	}
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

// TestPumpWithoutSplice holds that bytes pass through a buffer where there is no
// pipe to be had, and that the tunnel then goes on.
func TestPumpWithoutSplice(t *testing.T) {
	from, src := pair(t)
	dst, to := pair(t)
	p, err := newPump(dst, src)
	if err != nil {
		t.Fatal(err)
	}
	send(t, from, []byte("hello"))
	if n, err := p.nextBuffered(dst, src); n != 5 || err != nil {
		t.Fatal(n, err)
	}
	send(t, from, []byte(" world"))
	if n, err := p.next(); n != 6 || err != nil {
		t.Fatal(n, err)
	}
	_ = to.SetReadDeadline(time.Now().Add(patience))
	if got := string(readN(t, to, 11)); got != "hello world" {
		t.Errorf("got %q", got)
	}
}
