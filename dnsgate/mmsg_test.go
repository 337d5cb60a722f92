package dnsgate

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/miekg/dns"
	"golang.org/x/sys/unix"

	"sallyport/firewall/account"
)

// What is longer than any query is cut, and answered as what is left; the answer
// goes to its sender, and so do the answers around it.
func TestLongDatagrams(t *testing.T) {
	g := serve(t, Server{Policy: policy(t, "strict")})
	c := g.dial(t, "udp4").(*net.UDPConn)
	long := make([]byte, maxQuery+1000)
	copy(long, pack(t, question("allowed.example.", dns.TypeA)))
	junk := make([]byte, maxQuery+1000) // a header without a question, and zeros
	sendBatch(t, c, 3*minBatch, func(i int) []byte {
		switch i % 3 {
		case 0:
			return long
		case 1:
			return junk
		}
		return pack(t, question("other.example.", dns.TypeA))
	})
	got := make(map[int]int)
	for range 3 * minBatch {
		m := new(dns.Msg)
		if err := m.Unpack(read(t, c)); err != nil {
			t.Fatal(err)
		}
		got[m.Rcode]++
	}
	if got[dns.RcodeSuccess] != minBatch || got[dns.RcodeFormatError] != minBatch || got[dns.RcodeNameError] != minBatch {
		t.Errorf("response codes %v, want %d each of 0, 1 and 3", got, minBatch)
	}
	if n := len(g.take()); n != 3*minBatch {
		t.Errorf("%d records", n)
	}
}

// Answers that leave together arrive one by one, whole, each where it belongs,
// with a kernel that cuts them apart and with one that refuses to.
func TestRepliesTogether(t *testing.T) {
	for name, refuse := range map[string]int{"cut": 0, "refused": 1} {
		t.Run(name, func(t *testing.T) {
			s := newTestSocket(t)
			// Without checksums the kernel does not cut.
			if err := unix.SetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_NO_CHECK, refuse); err != nil {
				t.Fatal(err)
			}
			if !s.together {
				t.Fatal("this kernel cannot cut, so that nothing is tested")
			}
			clients := []*net.UDPConn{s.dial(t, "127.0.0.1"), s.dial(t, "127.0.0.1"), s.dial(t, "127.0.0.7")}
			stranger := s.dial(t, "127.9.9.9")
			names := []string{"allowed.example.", "a.tree.example.", "b.tree.example.", "other.example.", "x.other.example."}
			const each = 5
			for i := range each {
				for k, c := range append(clients, stranger) {
					q := question(names[(i*k+i)%len(names)], dns.TypeA)
					q.Id = uint16(100*k + i)
					if _, err := c.Write(pack(t, q)); err != nil {
						t.Fatal(err)
					}
				}
			}
			for range 10 * each {
				s.Ready(0)
			}
			if s.together != (refuse == 0) {
				t.Errorf("replies go together: %v", s.together)
			}
			for k, c := range clients {
				seen := make(map[uint16]bool)
				for range each {
					m := new(dns.Msg)
					if err := m.Unpack(read(t, c)); err != nil {
						t.Fatal(err)
					}
					i := int(m.Id) - 100*k
					if i < 0 || i >= each || seen[m.Id] || m.Question[0].Name != names[(i*k+i)%len(names)] {
						t.Errorf("client %d got %v", k, m)
					}
					seen[m.Id] = true
				}
			}
			stranger.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
			if _, err := stranger.Read(make([]byte, maxReply)); !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("read as a stranger: %v", err)
			}
		})
	}
}

// A testSocket is a socket that only the test serves.
type testSocket struct {
	*socket
	addr *net.UDPAddr
}

func newTestSocket(t *testing.T) testSocket {
	t.Helper()
	pc, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	addr := pc.LocalAddr().(*net.UDPAddr)
	w, _ := newTestAnswerer(t, "strict")
	w.c.Deliver = func([]account.Record) error { return nil }
	w.c.Prefix = netip.MustParsePrefix("127.0.0.0/24")
	s, err := newSocket(pc, w, newBatch())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(s.fd) })
	return testSocket{s, addr}
}

// dial connects a client to s.
func (s testSocket) dial(t *testing.T, from string) *net.UDPConn {
	t.Helper()
	c, err := net.DialUDP("udp4", &net.UDPAddr{IP: net.ParseIP(from)}, s.addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(10 * time.Second))
	return c
}

// Queries allocate nothing from their socket to the answer's.
func TestQueryAllocations(t *testing.T) {
	s := newTestSocket(t)
	s.w.c.limiter.SetBurst(1e9)
	s.w.c.limiter.SetLimit(1e9)
	c, buf := s.dial(t, "127.0.0.1"), make([]byte, maxReply)
	msgs := [][]byte{pack(t, question("allowed.example.", dns.TypeA)), pack(t, question("other.example.", dns.TypeAAAA))}
	n := testing.AllocsPerRun(200, func() {
		for range 4 {
			for _, msg := range msgs {
				if _, err := c.Write(msg); err != nil {
					t.Fatal(err)
				}
			}
		}
		s.Ready(0) // on the loopback interface they have arrived
		for range 4 * len(msgs) {
			if _, err := c.Read(buf); err != nil {
				t.Fatal(err)
			}
		}
	})
	if n != 0 {
		t.Errorf("%v allocations for %d queries, want none", n, 4*len(msgs))
	}
}
