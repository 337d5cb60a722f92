package tunnel

import (
	"bytes"
	"context"
	"crypto/rand"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"sallyport/firewall"
	"sallyport/firewall/account"
	"sallyport/sniproxy/refusal"
	"sallyport/sniproxy/testcell"
	"sallyport/sniproxy/testnet"
)

// Many tunnels that end in every way leave no goroutine, no descriptor but those
// of pooled pipes, and nothing on account.
func TestTunnelsLeaveNothing(t *testing.T) {
	testnet.NoLeak(t)
	before := testnet.Descriptors(t)
	c, k := newTunnelCell(t, nil)
	const rounds, atOnce = 20, 30
	big := make([]byte, 64<<10)
	for range rounds {
		var ends [][2]*net.TCPConn
		for range atOnce {
			client, up := c.open(k)
			ends = append(ends, [2]*net.TCPConn{client, up})
		}
		for i, e := range ends {
			switch i % 4 {
			case 0:
				e[0].Close()
				e[1].Close()
			case 1:
				testnet.Reset(e[i/4%2])
			case 2:
				_ = e[0].CloseWrite()
				testnet.Send(t, e[1], big)
				e[1].Close()
			case 3:
				_, _ = e[1].Write(big) // may be cut
				testnet.Reset(e[0])
			}
		}
		for _, e := range ends {
			e[0].Close()
			e[1].Close()
		}
	}
	c.Wait(rounds * atOnce)
	testnet.Eventually(t, "all to be counted out", func() bool { return c.server.Open() == 0 })
	if c.server.Standing() != 0 || c.server.HeadBytes() != 0 {
		t.Error("something is left on account")
	}
	c.End()
	// The canary's listener is still open, and the test's connections may be.
	testnet.Eventually(t, "the descriptors to be closed", func() bool { return testnet.Descriptors(t) <= before+2*maxIdlePipes+4 })
}

// A tunnel holds what its reader does not take, passes all of it on in order once
// it does, in both directions at the same time, and goes on after a rest.
func TestTunnelSlowReader(t *testing.T) {
	testnet.NoLeak(t)
	c, k := newTunnelCell(t, nil)
	client, up := c.open(k)
	for range 2 {
		data := make([]byte, 24<<20) // more than all buffers on the way
		_, _ = rand.Read(data)
		stuck := make(chan struct{})
		for _, from := range []*net.TCPConn{client, up} {
			go func() {
				for b, first := data, true; len(b) > 0; first = false {
					n, err := from.Write(b[:min(len(b), 1<<20)])
					if err != nil {
						t.Error(err)
						return
					}
					if b = b[n:]; first {
						stuck <- struct{}{}
					}
				}
			}()
		}
		<-stuck
		<-stuck
		got := make(chan bool, 2)
		for _, to := range []*net.TCPConn{client, up} {
			go func() {
				b := make([]byte, len(data))
				_, err := io.ReadFull(to, b)
				got <- err == nil && bytes.Equal(b, data)
			}()
		}
		if a, b := <-got, <-got; !a || !b {
			t.Fatal("not what was sent")
		}
		// Short pieces pass at once after bulk.
		for _, w := range []string{"a", "rest", "and a word"} {
			testnet.Send(t, client, []byte(w))
			testnet.ReadN(t, up, len(w))
			testnet.Send(t, up, []byte(w))
			testnet.ReadN(t, client, len(w))
		}
	}
	client.Close()
	up.Close()
	if r := c.Last(1); r.BytesDown != 2*(24<<20+15) {
		t.Errorf("record %+v", r)
	}
}

// A change of policy cuts a tunnel whose bytes are just being moved, and one
// whose reader takes none.
func TestPolicyCutsBulk(t *testing.T) {
	for _, reads := range []bool{true, false} {
		testnet.NoLeak(t)
		c, set := changing(t, nil)
		k := testnet.NewCanary(t)
		c.Origin("127.0.0.1:443", k.Addr)
		client, up := c.open(k)
		full := make(chan struct{})
		go func() {
			defer close(full)
			for b := make([]byte, 256<<10); ; {
				if _, err := client.Write(b); err != nil {
					return
				}
			}
		}()
		if reads {
			testnet.ReadN(t, up, 4<<20)
			go func() { _, _ = io.Copy(io.Discard, up) }()
		} else { // until nothing takes any more
			_ = client.SetWriteDeadline(time.Now().Add(time.Second))
			<-full
		}
		set(nil)
		r := c.Last(1)
		if r.Reason != firewall.ReasonPolicyChanged || r.BytesUp < 1<<18 {
			t.Errorf("record %+v", r)
		}
		c.End()
	}
}

// Whoever keeps the records and blocks holds up what is to be refused, and no
// tunnel that stands.
func TestBlockedRecord(t *testing.T) {
	testnet.NoLeak(t)
	var blocked atomic.Bool
	resume := make(chan struct{})
	var c *cell
	c, k := newTunnelCell(t, func(s *server) {
		s.Record = func(r account.Record) {
			if blocked.Load() {
				<-resume
			}
			c.Record(r)
		}
	})
	client, up := c.open(k)
	blocked.Store(true)
	refused := testnet.Dial(t, c.tls)
	testnet.Send(t, refused, testnet.HelloFor("evil.example"))
	for range 100 {
		testnet.Send(t, client, []byte("ping"))
		testnet.ReadN(t, up, 4)
		testnet.Send(t, up, []byte("pong"))
		testnet.ReadN(t, client, 4)
	}
	blocked.Store(false)
	close(resume)
	if got, err := io.ReadAll(refused); err != nil || !bytes.Equal(got, refusal.AccessDenied.Record()) {
		t.Errorf("the refused client got %x, %v", got, err)
	}
	if r := c.Last(1); r.Reason != firewall.ReasonNotListed {
		t.Errorf("record %+v", r)
	}
}

// panicky is a resolver that panics where it is told to.
type panicky struct {
	*testcell.Resolver
	remembering, resolving atomic.Bool
}

func (p *panicky) Remembered(firewall.Name) ([]netip.Addr, bool, error) {
	if p.remembering.Load() {
		panic("remembering")
	}
	return nil, false, nil
}

func (p *panicky) Resolve(ctx context.Context, name firewall.Name) ([]netip.Addr, error) {
	if p.resolving.Load() {
		panic("resolving")
	}
	return p.Resolver.Resolve(ctx, name)
}

// A panic ends the connection that caused it, leaves a record, and nothing else.
func TestLoopContainsPanics(t *testing.T) {
	testnet.NoLeak(t)
	p := &panicky{}
	c, k := newTunnelCell(t, func(s *server) {
		p.Resolver = s.Resolver.(*testcell.Resolver)
		s.Resolver = p
	})
	stands, up := c.open(k)
	for i, where := range []*atomic.Bool{&p.remembering, &p.resolving} {
		where.Store(true)
		client := testnet.Dial(t, c.tls)
		testnet.Send(t, client, testnet.HelloFor("site.example"))
		_, _ = io.ReadAll(client)
		where.Store(false)
		if r := c.Last(i + 1); r.Verdict != firewall.Deny || r.Reason != firewall.ReasonFault {
			t.Errorf("record %+v", r)
		}
	}
	testnet.Send(t, stands, []byte("still"))
	testnet.ReadN(t, up, 5)
	c.open(k)
	testnet.Eventually(t, "the others to be counted out", func() bool { return c.server.Open() == 2 })
}

// Several addresses are tried one after the other; one that hangs is not waited
// for, and what was tried in vain is closed.
//
// probe: R5
// oracle: the addresses that were dialled, and the one that was reached
func TestTunnelAttempts(t *testing.T) {
	const refused = "127.0.0.1:1"
	for _, test := range []struct {
		name   string
		routes []string // of the addresses; "" is the canary
		detail string
		tried  int
	}{
		{"the first refuses", []string{refused, ""}, "", 2},
		{"the first hangs", []string{"hang", ""}, "", 2},
		{"the second of three", []string{"hang", "", refused}, "", 2},
		{"the last of four", []string{refused, "hang", refused, ""}, "", 4},
		{"all refuse", []string{refused, refused, refused, refused, ""}, "connection refused", 4},
	} {
		t.Run(test.name, func(t *testing.T) {
			testnet.NoLeak(t)
			c, k := newTunnelCell(t, nil)
			_, at := testnet.Full(t, 4)
			hang := at.String()
			var addrs []string
			for i, to := range test.routes {
				addr := netip.AddrFrom4([4]byte{127, 0, 9, byte(i + 1)}).String()
				addrs = append(addrs, addr)
				switch to {
				case "":
					to = k.Addr
				case "hang":
					to = hang
				}
				c.Origin(addr+":443", to)
			}
			c.Resolver.Set("site.example", addrs...)
			client := testnet.Dial(t, c.tls)
			testnet.Send(t, client, testnet.HelloFor("site.example"))
			if test.detail == "" {
				up := k.Next(t)
				testnet.ReadN(t, up, len(testnet.HelloFor("site.example")))
				up.Close()
				client.Close()
			} else if got, err := io.ReadAll(client); err != nil || !bytes.Equal(got, refusal.InternalError.Record()) {
				t.Errorf("got %x, %v", got, err)
			}
			r := c.Last(1)
			if n := len(c.Dials()); n != test.tried || !strings.Contains(r.Detail, test.detail) {
				t.Errorf("%d tried, record %+v", n, r)
			}
			if want := addrs[test.tried-1] + ":443"; r.Upstream.String() != want {
				t.Errorf("upstream %v, want %v", r.Upstream, want)
			}
			if denied := r.Reason == firewall.ReasonDial; denied != (test.detail != "") {
				t.Errorf("record %+v", r)
			}
		})
	}
}

// A cell that ends while its tunnels are being dialled does not wait for them.
func TestServeEndsWhileDialling(t *testing.T) {
	testnet.NoLeak(t)
	c := newCell(t, "strict", nil)
	_, at := testnet.Full(t, 4)
	hang := at.String()
	c.Origin("127.0.0.1:443", hang)
	client := testnet.Dial(t, c.tls)
	testnet.Send(t, client, testnet.HelloFor("site.example"))
	testnet.Eventually(t, "the dial", func() bool { return len(c.Dials()) == 1 })
	c.End()
	if r := c.Last(1); r.Reason != firewall.ReasonDial {
		t.Errorf("record %+v", r)
	}
	testnet.WantCut(t, client)
}

// TestRelayAllocs holds that bytes move without any allocation, by the buffer and
// by a pipe.
func TestRelayAllocs(t *testing.T) {
	c, k := newTunnelCell(t, nil)
	client, up := c.open(k)
	for _, size := range []int{1000, 256 << 10} {
		buf := make([]byte, size)
		if n := testing.AllocsPerRun(100, func() {
			if _, err := client.Write(buf); err != nil {
				t.Fatal(err)
			}
			if _, err := io.ReadFull(up, buf); err != nil {
				t.Fatal(err)
			}
		}); n > 0 {
			t.Errorf("%v allocations for %d bytes", n, size)
		}
	}
}
