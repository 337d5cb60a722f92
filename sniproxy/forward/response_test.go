package forward

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"

	"sallyport/firewall"
	"sallyport/sniproxy/admission"
	"sallyport/sniproxy/testnet"
)

// responseHead is one of about size bytes, of fields that are each one byte long but
// for their name, or of one field.
func responseHead(size int, short bool) string {
	var b strings.Builder
	b.WriteString("HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n")
	if !short {
		b.WriteString("X-Long: " + strings.Repeat("x", size) + "\r\n")
	}
	for i := 0; short && b.Len() < size; i++ {
		fmt.Fprintf(&b, "%x:\r\n", i+0x1000)
	}
	return b.String() + "\r\n"
}

// Long heads of responses pass, those without end or of very many fields do not.
//
// probe: X12
// oracle: what the client gets, the record, and the account of heads
func TestForwardResponseHeads(t *testing.T) {
	for _, test := range []struct {
		name string
		head string
		ok   bool
	}{
		{"200 KiB", responseHead(200<<10, false), true},
		{"150 fields", responseHead(150*7, true), true},
		{"300 fields", responseHead(300*7, true), false},
		{"36000 fields", responseHead(250<<10, true), false},
		{"257 KiB", responseHead(257<<10, false), false},
	} {
		t.Run(test.name, func(t *testing.T) {
			testnet.NoLeak(t)
			c := newCell(t, "strict", nil)
			k := testnet.NewCanary(t)
			c.Origin("127.0.0.1:80", k.Addr)
			conn := testnet.Dial(t, c.http)
			testnet.Send(t, conn, []byte("GET / HTTP/1.1\r\nHost: site.example\r\n\r\n"))
			up := k.Next(t)
			_, _ = up.Write([]byte(test.head + strings.Repeat("\n", 100_000))) // fails where it is cut
			got, _ := io.ReadAll(io.LimitReader(conn, 100_000))
			if status := []byte("HTTP/1.1 502"); test.ok == bytes.HasPrefix(got, status) || len(got) == 0 {
				t.Errorf("got %.100q", got)
			}
			conn.Close()
			up.Close()
			if r := c.Last(1); r.Host != "site.example" || r.Verdict != firewall.Allow {
				t.Errorf("record %+v", r)
			}
			c.End()
			if held := c.server.HeadBytes(); held != 0 {
				t.Errorf("%d bytes on account at the end", held)
			}
		})
	}
}

// Servers that answer many requests of a run with long heads at once hold no more of
// the gate than the run's account of heads allows; the others are refused.
//
// probe: S20, X12
// oracle: the server's account and the process's memory meanwhile, and what clients get
func TestForwardSwarmOfResponses(t *testing.T) {
	testnet.NoLeak(t)
	const clients = 200
	c := newCell(t, "strict", nil)
	k := testnet.NewCanary(t)
	c.Origin("127.0.0.1:80", k.Addr)
	before := testnet.Memory()
	head := responseHead(200<<10, false)
	var conns []net.Conn
	for range clients {
		conn := testnet.Dial(t, c.http)
		testnet.Send(t, conn, []byte("GET / HTTP/1.1\r\nHost: site.example\r\n\r\n"))
		conns = append(conns, conn)
	}
	for range clients {
		_, _ = k.Next(t).Write([]byte(head)) // and no body
	}
	var passed int64
	for _, conn := range conns {
		got := testnet.ReadN(t, conn, len("HTTP/1.1 200"))
		if string(got) == "HTTP/1.1 200" {
			passed++
		} else if string(got) != "HTTP/1.1 502" {
			t.Errorf("got %q", got)
		}
	}
	testnet.Eventually(t, "the others to be gone", func() bool { return c.server.Open() == passed })
	if held := c.server.HeadBytes(); passed == 0 || held < passed*int64(len(head)) || held > admission.SharedBytes {
		t.Errorf("%d long heads at once, %d bytes on account", passed, held)
	}
	testnet.Eventually(t, "them to hold what is on account", func() bool { return testnet.Memory()-before < admission.SharedBytes+clients*maxStalled })
	for _, conn := range conns {
		conn.Close()
	}
	c.End()
	if held := c.server.HeadBytes(); held != 0 {
		t.Errorf("%d bytes on account at the end", held)
	}
}
