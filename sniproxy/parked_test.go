package sniproxy

import (
	"net"
	"strings"
	"sync"
	"testing"

	"sallyport/firewall"
	"sallyport/sniproxy/admission"
	"sallyport/sniproxy/testnet"
)

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
			account := admission.NewParked(limit)
			share := func(s *Server) { s.Parked = account }
			c, k := newTunnelCell(t, share)
			c.Origin("127.0.0.1:80", k.Addr)
			other, far := newTunnelCell(t, share)
			reader, source := other.open(far)

			var floods sync.WaitGroup
			for range conns {
				_, writer := open(c, k)
				testnet.Flood(&floods, writer)
			}
			cut := func() (n int) {
				records := c.Records()
				for _, r := range records {
					if r.Verdict != firewall.Deny || r.Reason != firewall.ReasonLimit || !strings.Contains(r.Detail, "does not read") ||
						r.Host != "site.example" || r.BytesUp+r.BytesDown == 0 {
						t.Fatalf("record %+v", r)
					}
				}
				return len(records)
			}
			held := func() int64 { return testnet.SocketMemory(t, []string{c.tls, c.http}, []string{k.Addr}) }
			testnet.Eventually(t, "some to be cut", func() bool { return cut() > 0 })
			testnet.Eventually(t, "what is left to be within the cell's part", func() bool { return held() <= limit/admission.ParkedShares })
			if n := cut(); n == conns {
				t.Error("all were cut, also those that the cell has room for")
			}

			for piece := make([]byte, 128<<10); len(piece) < 1<<20; piece = append(piece, piece...) {
				testnet.Send(t, source, piece)
				testnet.ReadN(t, reader, len(piece))
				testnet.Send(t, reader, piece)
				testnet.ReadN(t, source, len(piece))
			}
			// It is looked at now and then, and what is left still fills its buffers.
			testnet.Eventually(t, "what is held to be within the cell's part again", func() bool { return held() <= limit/admission.ParkedShares })
			c.End()
			other.End()
			floods.Wait()
			if n := account.Held(); n != 0 || account.Holders() != 0 {
				t.Errorf("%d bytes of %d cells are on the account at the end", n, account.Holders())
			}
		})
	}
}

// request begins an exchange of HTTP and returns both of its ends.
func (c *cell) request(k *testnet.Canary, method, fields string) (client, up net.Conn) {
	c.TB.Helper()
	client = testnet.Dial(c.TB, c.http)
	testnet.Send(c.TB, client, []byte(method+" / HTTP/1.1\r\nHost: site.example\r\n"+fields+"\r\n"))
	up = k.Next(c.TB)
	for head := ""; !strings.HasSuffix(head, "\r\n\r\n"); {
		head += string(testnet.ReadN(c.TB, up, 1))
	}
	if method == "GET" {
		testnet.Send(c.TB, up, []byte("HTTP/1.1 200 OK\r\nContent-Length: 9000000000\r\n\r\n"))
	}
	return client, up
}
