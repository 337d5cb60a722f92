package sniproxy

import (
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"sallyport/firewall"
	"sallyport/sniproxy/socket"
	"sallyport/sniproxy/testnet"
)

// socketMemory is what the kernel holds for the gate's own ends: the sockets whose own
// address is one of own, or whose other end is one of far.
func socketMemory(t *testing.T, own, far []string) (sum int64) {
	t.Helper()
	all, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	among := func(name func(int) (netip.AddrPort, bool), fd int, want []string) bool {
		at, ok := name(fd)
		for _, s := range want {
			if ok && at == netip.MustParseAddrPort(s) {
				return true
			}
		}
		return false
	}
	for _, e := range all {
		fd, _ := strconv.Atoi(e.Name())
		if among(socket.Local, fd, own) || among(socket.Peer, fd, far) {
			n, _ := socket.Held(fd) // what is closed meanwhile holds nothing
			sum += n
		}
	}
	return sum
}

// flood writes until the other end is gone.
func flood(wg *sync.WaitGroup, c net.Conn) {
	wg.Go(func() {
		for b := make([]byte, 256<<10); ; {
			if _, err := c.Write(b); err != nil {
				return
			}
		}
	})
}

// Clients of one run open tunnels and requests, have a listed server send or send to
// it without end, and neither side reads. What the gate holds for them, as the kernel
// says, comes to rest at the cell's part of the account; what is cut is on record; and
// a cell that reads gets all that its server sends, through the same account.
//
// probe: S24
// oracle: the kernel's word about the gate's sockets; the records; what the other
// cell reads meanwhile
func TestStalledConnections(t *testing.T) {
	const limit, conns = 32 << 20, 24
	for what, open := range map[string]func(c *cell, k *testnet.Canary) (client, up net.Conn){
		"tunnels, down":  func(c *cell, k *testnet.Canary) (net.Conn, net.Conn) { client, up := c.open(k); return client, up },
		"tunnels, up":    func(c *cell, k *testnet.Canary) (net.Conn, net.Conn) { client, up := c.open(k); return up, client },
		"requests, down": func(c *cell, k *testnet.Canary) (net.Conn, net.Conn) { return c.request(k, "GET", "") },
		"requests, up": func(c *cell, k *testnet.Canary) (net.Conn, net.Conn) {
			client, up := c.request(k, "POST", "Content-Length: 9000000000\r\n")
			return up, client
		},
	} {
		t.Run(what, func(t *testing.T) {
			testnet.NoLeak(t)
			account := NewParked(limit)
			share := func(s *Server) { s.Parked = account }
			c, k := newTunnelCell(t, share)
			c.origin("127.0.0.1:80", k.Addr)
			other, far := newTunnelCell(t, share)
			reader, source := other.open(far)

			var floods sync.WaitGroup
			for range conns {
				_, writer := open(c, k)
				flood(&floods, writer)
			}
			cut := func() (n int) {
				c.mu.Lock()
				defer c.mu.Unlock()
				for _, r := range c.records {
					if r.Verdict != firewall.Deny || r.Reason != firewall.ReasonLimit || !strings.Contains(r.Detail, "does not read") ||
						r.Host != "site.example" || r.BytesUp+r.BytesDown == 0 {
						t.Fatalf("record %+v", r)
					}
				}
				return len(c.records)
			}
			held := func() int64 { return socketMemory(t, []string{c.tls, c.http}, []string{k.Addr}) }
			testnet.Eventually(t, "some to be cut", func() bool { return cut() > 0 })
			testnet.Eventually(t, "what is left to be within the cell's part", func() bool { return held() <= limit/parkedShares })
			if n := cut(); n == conns {
				t.Error("all were cut, also those that the cell has room for")
			}

			for piece := make([]byte, 128<<10); len(piece) < 1<<20; piece = append(piece, piece...) {
				testnet.Send(t, source, piece)
				testnet.ReadN(t, reader, len(piece))
				testnet.Send(t, reader, piece)
				testnet.ReadN(t, source, len(piece))
			}
			if n := held(); n > limit/parkedShares+limit/8 { // it is looked at now and then
				t.Errorf("%d bytes are held, want at most %d", n, limit/parkedShares)
			}
			c.end()
			other.end()
			floods.Wait()
			if n := account.Held(); n != 0 || account.holders.Load() != 0 {
				t.Errorf("%d bytes of %d cells are on the account at the end", n, account.holders.Load())
			}
		})
	}
}

// request begins an exchange of HTTP and returns both of its ends.
func (c *cell) request(k *testnet.Canary, method, fields string) (client, up net.Conn) {
	c.tb.Helper()
	client = testnet.Dial(c.tb, c.http)
	testnet.Send(c.tb, client, []byte(method+" / HTTP/1.1\r\nHost: site.example\r\n"+fields+"\r\n"))
	up = k.Next(c.tb)
	for head := ""; !strings.HasSuffix(head, "\r\n\r\n"); {
		head += string(testnet.ReadN(c.tb, up, 1))
	}
	if method == "GET" {
		testnet.Send(c.tb, up, []byte("HTTP/1.1 200 OK\r\nContent-Length: 9000000000\r\n\r\n"))
	}
	return client, up
}

// Where all cells together hold more than the limit, it is those with more than an
// equal part of it that give up.
func TestParkedShares(t *testing.T) {
	p := NewParked(100)
	cells := make([]*Server, 8)
	for i := range cells {
		cells[i] = &Server{Parked: p}
		cells[i].park(10)
	}
	cells[0].park(15)
	if may := cells[0].may(); may != 25 {
		t.Errorf("below the limit a cell may hold %d, want a quarter, 25", may)
	}
	for _, s := range cells {
		s.park(1)
	}
	cells[1].park(-11) // it holds nothing, and counts no more
	if all, may := p.Held(), cells[2].may(); all != 92 || may != 25 {
		t.Errorf("%d are held and a cell may hold %d", all, may)
	}
	cells[2].park(10)
	if all, may := p.Held(), cells[2].may(); all != 102 || may != 100/7 {
		t.Errorf("%d are held and a cell may hold %d, want one of 7 parts", all, may)
	}
}

// A cell whose tunnels nobody reads from keeps no more pipes than its own, and no
// other cell has to do with small ones.
func TestPipesOfACell(t *testing.T) {
	testnet.NoLeak(t)
	account := NewParked(1 << 30)
	share := func(s *Server) { s.Parked = account }
	c, k := newTunnelCell(t, share)
	var floods sync.WaitGroup
	for range 3 * maxCellPipes {
		_, up := c.open(k)
		flood(&floods, up)
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
	c.end()
	floods.Wait()
}
