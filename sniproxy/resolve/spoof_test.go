package resolve

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"

	"github.com/miekg/dns"

	"sallyport/sniproxy/testnet"
)

const (
	trueAddr   = "192.0.2.4"
	forgedAddr = "198.51.100.66"
)

// answerOf is a reply to q with one address.
func answerOf(q *dns.Msg, addr string) *dns.Msg {
	m := new(dns.Msg).SetReply(q)
	if q.Question[0].Qtype == dns.TypeA {
		m.Answer = []dns.RR{&dns.A{Hdr: dns.RR_Header{Name: q.Question[0].Name, Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: 60},
			A: net.ParseIP(addr)}}
	}
	return m
}

// Whoever can send packets to the gate may answer before the resolver does. What he
// cannot know is the query's id, port and question: without them he is not heard.
//
// probe: X7
// oracle: the addresses that the resolver gives out, which are those of the true
// server or none
func TestResolveSpoofed(t *testing.T) {
	elsewhere, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer elsewhere.Close()
	tests := []struct {
		name   string
		forge  func(m *dns.Msg) // changes the forged answer, which is right but for its address
		from   net.PacketConn   // nil is the server's own
		silent bool             // fails closed: the forger knew the id and the port
	}{
		{"another id", func(m *dns.Msg) { m.Id++ }, nil, false},
		{"another port", func(*dns.Msg) {}, elsewhere, false},
		{"another question", func(m *dns.Msg) { m.Question[0].Name = "other.example." }, nil, true},
		{"another type", func(m *dns.Msg) { m.Question[0].Qtype = dns.TypeTXT }, nil, true},
		{"another class", func(m *dns.Msg) { m.Question[0].Qclass = dns.ClassCHAOS }, nil, true},
		{"no question", func(m *dns.Msg) { m.Question = nil }, nil, true},
		{"a query", func(m *dns.Msg) { m.Response = false }, nil, true},
		{"another operation", func(m *dns.Msg) { m.Opcode = dns.OpcodeNotify }, nil, true},
		{"another name's address", func(m *dns.Msg) { m.Answer[0].Header().Name = "other.example." }, nil, true},
		{"an address beside the answer", func(m *dns.Msg) { m.Extra, m.Answer = m.Answer, nil }, nil, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			server := serveSpoofed(t, func(pc net.PacketConn, from net.Addr, q *dns.Msg) {
				if q.Question[0].Qtype == dns.TypeA {
					forged := answerOf(q, forgedAddr)
					tt.forge(forged)
					by := tt.from
					if by == nil {
						by = pc
					}
					sendTo(t, by, from, forged)
				}
				sendTo(t, pc, from, answerOf(q, trueAddr))
			})
			addrs, err := (&Client{Servers: []Server{UDPServer(server)}}).Resolve(t.Context(), testnet.ParseName(t, "site.example"))
			got := fmt.Sprint(addrs)
			if strings.Contains(got, forgedAddr) || tt.silent != (err != nil) || !tt.silent && got != "["+trueAddr+"]" {
				t.Errorf("%s, %v; want the true answer: %v", got, err, !tt.silent)
			}
		})
	}
}

// Ids and ports are not to be guessed from those before.
//
// probe: X7
// oracle: the ids and ports of the queries as a server on the far side got them
func TestResolveUnguessable(t *testing.T) {
	const n = 64
	var mu sync.Mutex
	ids, ports := map[uint16]bool{}, map[int]bool{}
	server := serveSpoofed(t, func(pc net.PacketConn, from net.Addr, q *dns.Msg) {
		mu.Lock()
		ids[q.Id], ports[from.(*net.UDPAddr).Port] = true, true
		mu.Unlock()
		sendTo(t, pc, from, answerOf(q, trueAddr))
	})
	r := &Client{Servers: []Server{UDPServer(server)}}
	for range n {
		if _, err := r.Resolve(t.Context(), testnet.ParseName(t, "site.example")); err != nil {
			t.Fatal(err)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	if len(ids) < n || len(ports) < n/2 { // of two queries each
		t.Errorf("%d ids and %d ports in %d look-ups", len(ids), len(ports), n)
	}
	if next := consecutive(ids); next > n/4 {
		t.Errorf("%d of %d ids follow another", next, len(ids))
	}
}

// consecutive counts the ids that are one more than another.
func consecutive(ids map[uint16]bool) (n int) {
	for id := range ids {
		if ids[id-1] {
			n++
		}
	}
	return n
}

// serveSpoofed is a UDP server that hands each query to answer.
func serveSpoofed(t *testing.T, answer func(pc net.PacketConn, from net.Addr, q *dns.Msg)) netip.AddrPort {
	t.Helper()
	pc, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	serving.Go(func() {
		buf := make([]byte, 4096)
		for {
			n, from, err := pc.ReadFrom(buf)
			if err != nil {
				return
			}
			q := new(dns.Msg)
			if err := q.Unpack(buf[:n]); err != nil {
				t.Error(err)
				return
			}
			answer(pc, from, q)
		}
	})
	t.Cleanup(func() {
		pc.Close()
		serving.Wait()
	})
	return netip.MustParseAddrPort(pc.LocalAddr().String())
}

func sendTo(t *testing.T, pc net.PacketConn, to net.Addr, m *dns.Msg) {
	t.Helper()
	b, err := m.Pack()
	if err == nil {
		_, err = pc.WriteTo(b, to)
	}
	if err != nil && !errors.Is(err, net.ErrClosed) { // the test may be over
		t.Error(err)
	}
}
