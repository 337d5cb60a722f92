package dnsgate

import (
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miekg/dns"
	"golang.org/x/net/ipv4"

	"sallyport/firewall"
	"sallyport/firewall/account"
	"sallyport/internal/output"
)

// Queries that arrive together are answered each to its own sender, with its
// own id, and make a record each.
func TestBatch(t *testing.T) {
	const clients, each = 4, 20
	g := serve(t, Server{Policy: policy(t, "strict")})
	names := []string{"allowed.example.", "x.tree.example.", "other.example.", `a\000.tree.example.`}
	conns := make([]net.Conn, clients)
	for i := range conns {
		conns[i] = g.dial(t, "udp4")
		sendBatch(t, conns[i].(*net.UDPConn), each, func(k int) []byte {
			q := question(names[(i+k)%len(names)], dns.TypeA)
			q.Id = uint16(1000*i + k)
			return pack(t, q)
		})
	}
	for i, c := range conns {
		seen := make(map[uint16]bool)
		for range each {
			m := new(dns.Msg)
			if err := m.Unpack(read(t, c)); err != nil {
				t.Fatal(err)
			}
			k := int(m.Id) - 1000*i
			if k < 0 || k >= each || seen[m.Id] {
				t.Fatalf("client %d got id %d", i, m.Id)
			}
			seen[m.Id] = true
			if want := names[(i+k)%len(names)]; m.Question[0].Name != want {
				t.Errorf("id %d is about %q, want %q", m.Id, m.Question[0].Name, want)
			}
		}
	}
	if n := len(g.take()); n != clients*each {
		t.Errorf("%d records of %d queries", n, clients*each)
	}
}

// No answer is sent before its record is flushed, and none if that fails.
//
// probe: L6
// oracle: the order of the flush and the answer that the client gets; no answer while
// the flush fails
func TestFlushComesFirst(t *testing.T) {
	for _, network := range []string{"udp4", "tcp4"} {
		t.Run(network, func(t *testing.T) {
			var recorded, flushed atomic.Int64
			var full atomic.Bool
			var log output.Buffer
			addr := serveRaw(t, Server{
				Policy: policy(t, "strict"), Log: slog.New(slog.NewTextHandler(&log, nil)),
				Record: func(account.Record) { recorded.Add(1) },
				Flush: func() error {
					if full.Load() {
						return errors.New("no space left")
					}
					flushed.Store(recorded.Load())
					return nil
				},
			})
			ask := func() error {
				c, err := net.Dial(network, addr)
				if err != nil {
					t.Fatal(err)
				}
				defer c.Close()
				c.SetDeadline(time.Now().Add(10 * time.Second))
				if full.Load() && network == "udp4" {
					c.SetDeadline(time.Now().Add(100 * time.Millisecond))
				}
				_, err = exchangeOn(c, network, pack(t, question("allowed.example.", dns.TypeA)))
				return err
			}
			for i := range int64(5) {
				if err := ask(); err != nil {
					t.Fatalf("control: %v", err)
				}
				if flushed.Load() <= i {
					t.Errorf("answer %d came when %d records were flushed", i+1, flushed.Load())
				}
			}
			for outage := 1; outage <= 2; outage++ {
				full.Store(true)
				for range 2 {
					if ask() == nil {
						t.Error("an answer though its record could not be written")
					}
				}
				if n := strings.Count(log.String(), "no answers while their records cannot be written"); n != outage {
					t.Errorf("%d lines in the log in outage %d, want one for each:\n%s", n, outage, log.String())
				}
				full.Store(false)
				if err := ask(); err != nil {
					t.Errorf("control: %v", err)
				}
			}
		})
	}
}

// serveRaw runs s with its own Record and Flush until the test ends.
func serveRaw(t *testing.T, s Server) (addr string) {
	t.Helper()
	s.Answer, s.Prefix, s.Log = answerAddr, netip.MustParsePrefix("127.0.0.1/32"), orDefault(s.Log, slog.New(slog.DiscardHandler))
	ln, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	pc, err := net.ListenUDP("udp4", net.UDPAddrFromAddrPort(netip.MustParseAddrPort(ln.Addr().String())))
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- s.Serve(t.Context(), pc, ln) }()
	t.Cleanup(func() { // t.Context has ended
		if err := <-done; err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
	return ln.Addr().String()
}

// exchangeOn sends one message on c and returns the reply.
func exchangeOn(c net.Conn, network string, msg []byte) ([]byte, error) {
	if network == "tcp4" {
		msg = append(binary.BigEndian.AppendUint16(nil, uint16(len(msg))), msg...)
	}
	if _, err := c.Write(msg); err != nil {
		return nil, err
	}
	buf := make([]byte, maxReply)
	n, err := c.Read(buf)
	if n == 0 && err == nil {
		err = io.ErrUnexpectedEOF
	}
	return buf[:n], err
}

// sendBatch sends n messages in one call of the kernel.
func sendBatch(t testing.TB, c *net.UDPConn, n int, msg func(int) []byte) {
	t.Helper()
	batch := make([]ipv4.Message, n)
	for i := range batch {
		batch[i].Buffers = [][]byte{msg(i)}
	}
	conn := ipv4.NewPacketConn(c)
	for len(batch) > 0 {
		sent, err := conn.WriteBatch(batch, 0)
		if err != nil {
			t.Fatal(err)
		}
		batch = batch[sent:]
	}
}

func read(t testing.TB, c net.Conn) []byte {
	t.Helper()
	buf := make([]byte, maxReply)
	n, err := c.Read(buf)
	if err != nil {
		t.Fatal(err)
	}
	return buf[:n]
}

// A cell that is flooded, beyond its rate and with all that its socket holds,
// leaves the queries of another cell answered, each of them.
//
// probe: D20
// oracle: 300 queries of the other cell, each answered and on record, while the flood
// goes on
func TestFloodLeavesOtherCellsAlone(t *testing.T) {
	const asked = 300
	flooded := serve(t, Server{Policy: policy(t, "strict"), Rate: 50, Burst: 50})
	other := serve(t, Server{Policy: policy(t, "strict")})
	stop, stopped := make(chan struct{}), make(chan int)
	c := flooded.dial(t, "udp4").(*net.UDPConn)
	msg := pack(t, question("allowed.example.", dns.TypeA))
	go func() {
		sent := 0
		for {
			select {
			case <-stop:
				stopped <- sent
				return
			default:
				if _, err := c.Write(msg); err == nil {
					sent++
				}
			}
		}
	}()
	flooded.waitFor(t, "the flood", func(r account.Record) bool { return r.Reason == firewall.ReasonLimit })
	for range asked {
		other.alive(t)
	}
	close(stop)
	if sent := <-stopped; sent < asked {
		t.Errorf("a flood of %d queries is none", sent)
	}
	records := other.take()
	if len(records) != asked {
		t.Errorf("%d records of %d queries", len(records), asked)
	}
	for _, r := range records {
		if r.Verdict != firewall.Allow {
			t.Errorf("record in the other cell: %+v", r)
		}
	}
}

// BenchmarkUDP answers queries over the loopback interface, a batch of the
// client's at a time.
func BenchmarkUDP(b *testing.B) {
	ln, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	pc, err := net.ListenUDP("udp4", net.UDPAddrFromAddrPort(netip.MustParseAddrPort(ln.Addr().String())))
	if err != nil {
		b.Fatal(err)
	}
	s := Server{
		Policy: policy(b, "strict"), Answer: answerAddr, Prefix: netip.MustParsePrefix("127.0.0.1/32"),
		Record: func(account.Record) {}, Log: noLog, Rate: 1e9, Burst: 1e9,
	}
	go s.Serve(b.Context(), pc, ln)
	conn, err := net.Dial("udp4", ln.Addr().String())
	if err != nil {
		b.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(time.Minute))
	msg := pack(b, question("registry.tree.example.", dns.TypeA))
	batch := ipv4.NewPacketConn(conn.(*net.UDPConn))
	replies := make([]ipv4.Message, maxBatch)
	for i := range replies {
		replies[i].Buffers = [][]byte{make([]byte, maxReply)}
	}
	b.ReportAllocs()
	for left := b.N; left > 0; {
		n := min(left, maxBatch)
		sendBatch(b, conn.(*net.UDPConn), n, func(int) []byte { return msg })
		for got := 0; got < n; {
			k, err := batch.ReadBatch(replies, 0)
			if err != nil {
				b.Fatal(err)
			}
			got += k
		}
		left -= n
	}
}
