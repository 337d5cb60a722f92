package dnsgate

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/miekg/dns"

	"sallyport/firewall"
	"sallyport/firewall/account"
)

// frame puts TCP's length in front of a message.
func frame(msg []byte) []byte {
	return append(binary.BigEndian.AppendUint16(nil, uint16(len(msg))), msg...)
}

// readReply reads one message from a TCP connection.
func readReply(c io.Reader) (*dns.Msg, error) {
	var length [2]byte
	if _, err := io.ReadFull(c, length[:]); err != nil {
		return nil, err
	}
	buf := make([]byte, binary.BigEndian.Uint16(length[:]))
	if _, err := io.ReadFull(c, buf); err != nil {
		return nil, err
	}
	m := new(dns.Msg)
	return m, m.Unpack(buf)
}

// exchange asks once on an open connection.
func exchange(c net.Conn, msg []byte) (*dns.Msg, error) {
	if _, err := c.Write(frame(msg)); err != nil {
		return nil, err
	}
	return readReply(c)
}

func TestTCP(t *testing.T) {
	g := serve(t, Server{Policy: policy(t, "strict")})
	c := g.dial(t, "tcp4")
	for _, name := range []string{"allowed.example.", "x.tree.example."} {
		m, err := exchange(c, pack(t, question(name, dns.TypeA)))
		if err != nil {
			t.Fatal(err)
		}
		wantA(t, m, name)
		g.wantRecord(t, firewall.Allow, firewall.ReasonListed, strings.TrimSuffix(name, "."))
	}
	m, err := exchange(c, pack(t, question("other.example.", dns.TypeA)))
	if err != nil {
		t.Fatal(err)
	}
	wantEmpty(t, m, dns.RcodeNameError)
	g.wantRecord(t, firewall.Deny, firewall.ReasonNotListed, "other.example")

	// A message longer than the gate reads is a query with garbage behind it.
	m, err = exchange(c, append(pack(t, question("allowed.example.", dns.TypeA)), make([]byte, 60000)...))
	if err != nil {
		t.Fatal(err)
	}
	wantA(t, m, "allowed.example.")

	// The same refusals as over UDP.
	for _, test := range malformedMessages(t) {
		if test.silent || len(test.msg) < headerLen {
			continue
		}
		m, err := exchange(c, test.msg)
		if err != nil {
			t.Fatalf("%s: %v", test.name, err)
		}
		wantEmpty(t, m, dns.RcodeFormatError)
	}
}

// A length that no query has, or an answer in place of a query, ends the connection.
//
// probe: D17
// oracle: a closed connection and the record of it; UDP answers afterwards
func TestTCPBadMessage(t *testing.T) {
	g := serve(t, Server{Policy: policy(t, "strict")})
	answer := pack(t, new(dns.Msg).SetReply(question("allowed.example.", dns.TypeA)))
	for name, msg := range map[string][]byte{
		"length 0": {0, 0}, "length 11": append([]byte{0, 11}, header(1, 0, 0, 0)...), "answer": frame(answer),
	} {
		t.Run(name, func(t *testing.T) {
			g.take()
			c := g.dial(t, "tcp4")
			if _, err := c.Write(msg); err != nil {
				t.Fatal(err)
			}
			if _, err := c.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("read: %v, want a closed connection", err)
			}
			g.wantRecord(t, firewall.Deny, firewall.ReasonBadQuery, "")
		})
	}
	g.alive(t)
}

// Of ten thousand pipelined queries the first are answered, then the connection
// is closed; a new one and UDP work.
//
// probe: D17
// oracle: the count of answers on the connection, the record of the cut, and answers on
// UDP and on a new connection
func TestTCPPipeline(t *testing.T) {
	const most = 20
	g := serve(t, Server{Policy: policy(t, "strict"), MaxQueries: most})
	c := g.dial(t, "tcp4")
	one := frame(pack(t, question("allowed.example.", dns.TypeA)))
	go func() {
		for range 10000 {
			if _, err := c.Write(one); err != nil {
				return
			}
		}
	}()
	got := 0
	for ; ; got++ {
		if _, err := readReply(c); err != nil {
			break
		}
	}
	if got > most {
		t.Errorf("%d answers on one connection, want at most %d", got, most)
	}
	g.waitFor(t, "the cut", func(r account.Record) bool {
		return r.Reason == firewall.ReasonLimit && strings.Contains(r.Detail, fmt.Sprintf("over %d queries", most))
	})
	g.alive(t)
	if m, err := exchange(g.dial(t, "tcp4"), one[2:]); err != nil {
		t.Error(err)
	} else {
		wantA(t, m, "allowed.example.")
	}
}

// Connections beyond the cap are closed; those within it and UDP work, and a
// place that becomes free is taken again.
//
// probe: D17
// oracle: connections over the cap that are closed, the record of it, answers on UDP
// and on those within the cap
func TestTCPHoard(t *testing.T) {
	const most = 4
	g := serve(t, Server{Policy: policy(t, "strict"), MaxConns: most, Idle: time.Minute})
	msg := pack(t, question("allowed.example.", dns.TypeA))
	var held []net.Conn
	for range most {
		c := g.dial(t, "tcp4")
		if _, err := exchange(c, msg); err != nil { // it has its place
			t.Fatal(err)
		}
		held = append(held, c)
	}
	for range 10 {
		c := g.dial(t, "tcp4")
		if _, err := c.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("read on a connection over the cap: %v, want it closed", err)
		}
	}
	g.waitFor(t, "the cap", func(r account.Record) bool {
		return r.Reason == firewall.ReasonLimit && strings.Contains(r.Detail, "TCP connections are open")
	})
	g.alive(t)
	for _, c := range held {
		if _, err := exchange(c, msg); err != nil {
			t.Errorf("a connection within the cap: %v", err)
		}
	}
	held[0].Close()
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		c := g.dial(t, "tcp4")
		_, err := exchange(c, msg)
		c.Close()
		if err == nil {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("the free place is not taken: %v", err)
		}
	}
}

// pipeCell serves one connection in a bubble whose clock jumps.
func pipeCell(t *testing.T, s Server) (client net.Conn, records func() []account.Record, ended func() time.Duration) {
	t.Helper()
	var rs []account.Record
	s.Policy, s.Answer, s.Prefix = policy(t, "strict"), answerAddr, netip.MustParsePrefix("127.0.0.0/8")
	s.Record = func(r account.Record) { rs = append(rs, r) }
	s.Log = noLog
	c, err := s.cell()
	if err != nil {
		t.Fatal(err)
	}
	client, server := net.Pipe()
	start, done := time.Now(), make(chan struct{})
	var took time.Duration
	go func() {
		defer close(done)
		c.serveConn(context.Background(), server, netip.MustParseAddrPort("127.0.0.1:1"))
		took = time.Since(start)
	}()
	return client, func() []account.Record { c.endTallies(); return rs }, func() time.Duration { <-done; return took }
}

// A client that sends nothing is cut after Idle, without a record: it owes nothing.
//
// probe: D17
// oracle: the time at which the server lets go, in a bubble whose clock is exact
func TestTCPIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, records, ended := pipeCell(t, Server{})
		if took := ended(); took != DefaultIdle {
			t.Errorf("ended after %v, want %v", took, DefaultIdle)
		}
		if rs := records(); len(rs) != 0 {
			t.Errorf("records %+v", rs)
		}
		client.Close()
	})
}

// A client that sends a byte a second is cut after Idle all the same.
//
// probe: D17
// oracle: the time at which the server lets go, and the record
func TestTCPDrip(t *testing.T) {
	msg := frame(pack(t, question("allowed.example.", dns.TypeA)))
	synctest.Test(t, func(t *testing.T) {
		client, records, ended := pipeCell(t, Server{})
		var sender sync.WaitGroup
		sender.Go(func() {
			for i := range msg {
				if _, err := client.Write(msg[i : i+1]); err != nil {
					return
				}
				time.Sleep(time.Second)
			}
		})
		if took := ended(); took != DefaultIdle {
			t.Errorf("ended after %v, want %v", took, DefaultIdle)
		}
		rs := records()
		if len(rs) != 1 || rs[0].Reason != firewall.ReasonLimit || !strings.Contains(rs[0].Detail, "did not arrive in time") {
			t.Errorf("records %+v", rs)
		}
		client.Close()
		sender.Wait()
	})
}

// A client that never pauses for long is cut after Total all the same.
//
// probe: D17
// oracle: the time at which the server lets go, and a record for each query
func TestTCPTotal(t *testing.T) {
	const pause = 4500 * time.Millisecond // not a divisor of Total
	msg := pack(t, question("allowed.example.", dns.TypeA))
	synctest.Test(t, func(t *testing.T) {
		client, records, ended := pipeCell(t, Server{})
		var sender sync.WaitGroup
		sender.Go(func() {
			for {
				if _, err := exchange(client, msg); err != nil {
					return
				}
				time.Sleep(pause)
			}
		})
		if took := ended(); took != DefaultTotal {
			t.Errorf("ended after %v, want %v", took, DefaultTotal)
		}
		if n, want := len(records()), 1+int(DefaultTotal/pause); n != want {
			t.Errorf("%d records, want %d: one for each query and none for the end", n, want)
		}
		client.Close()
		sender.Wait()
	})
}

// A client that does not read its answers is cut.
//
// probe: D17
// oracle: the time at which the server lets go
func TestTCPDeafClient(t *testing.T) {
	msg := frame(pack(t, question("allowed.example.", dns.TypeA)))
	synctest.Test(t, func(t *testing.T) {
		client, _, ended := pipeCell(t, Server{})
		if _, err := client.Write(msg); err != nil {
			t.Fatal(err)
		}
		if took := ended(); took != DefaultIdle {
			t.Errorf("ended after %v, want %v", took, DefaultIdle)
		}
		client.Close()
	})
}
