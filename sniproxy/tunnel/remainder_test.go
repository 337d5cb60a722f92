package tunnel

import (
	"bytes"
	"crypto/rand"
	"errors"
	"io"
	"net"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"sallyport/firewall"
	"sallyport/sniproxy/admission"
	"sallyport/sniproxy/reach"
	"sallyport/sniproxy/socket"
	"sallyport/sniproxy/testcell"
	"sallyport/sniproxy/testnet"
)

// standing reports whether c has a tunnel that stands, and whether ok holds for the
// newest one, on its loop.
func (c *cell) standing(ok func(*tunnel) bool) (stands, holds bool) {
	type answer struct{ stands, holds bool }
	for _, w := range admission.Running() {
		got := make(chan answer, 1)
		w.Post(func() {
			var a answer
			defer func() { got <- a }()
			for fd := range 1 << 16 {
				e, is := w.Handler(fd).(*end)
				if !is || e.tunnel.v.Cell != &c.server.Cell {
					continue
				}
				for t := e.tunnel.v.tunnels.first; t != nil; t = t.next {
					if t.stage == stageRelay {
						a = answer{true, ok(t)}
						return
					}
				}
			}
		})
		select {
		case a := <-got:
			if a.stands {
				return a.stands, a.holds
			}
		case <-w.Ended():
		}
	}
	return false, false
}

// noticed waits until the gate knows that one end is broken, if only by having
// ended the tunnel.
func (c *cell) noticed() {
	c.TB.Helper()
	testnet.Eventually(c.TB, "the gate to notice", func() bool {
		stands, broken := c.standing(func(t *tunnel) bool { return t.client.broken || t.up.broken })
		return broken || !stands
	})
}

// An end that finished and whose kernel has then forgotten the connection has
// said all of it: the other one gets to read it, whenever that is. Without the
// end it is a part, and cut.
func TestTunnelTail(t *testing.T) {
	for _, test := range []struct {
		name     string
		size     int
		up       bool // it is an upload
		finished bool
		speaks   bool // the slow side says something meanwhile
	}{
		{"short download", 100 << 10, false, true, false},
		{"long download", 768 << 10, false, true, false},
		{"short download, the client speaks", 100 << 10, false, true, true},
		{"long download, the client speaks", 768 << 10, false, true, true},
		{"short upload", 100 << 10, true, true, false},
		{"long upload", 768 << 10, true, true, false},
		{"download without an end", 768 << 10, false, false, false},
		{"upload without an end", 100 << 10, true, false, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			testnet.NoLeak(t)
			c, k := newTunnelCell(t, nil)
			slow, done := c.open(k)
			if test.up {
				slow, done = done, slow
			}
			data := make([]byte, test.size)
			_, _ = rand.Read(data)
			testnet.Send(t, done, data)
			if test.finished {
				_ = done.CloseWrite()
			}
			testnet.Arrive(t, done)
			testnet.Reset(done)
			c.noticed()
			if test.speaks {
				for range 10 {
					_, _ = slow.Write([]byte("I am reading")) // the gate may have hung up by then
					time.Sleep(time.Millisecond)
				}
			}
			got, err := io.ReadAll(slow)
			if whole := err == nil; whole != test.finished || whole && !bytes.Equal(got, data) {
				t.Errorf("got %d bytes of %d, %v", len(got), len(data), err)
			}
			slow.Close()
			r := c.Last(1)
			if n := r.BytesDown + r.BytesUp; test.finished && n < int64(len(data)) || r.Detail != "" {
				t.Errorf("record %+v", r)
			}
			testnet.Eventually(t, "the connection to be counted out", func() bool { return c.server.Open() == 0 })
		})
	}
}

// The same by the kernel's own doing, with its times shortened, and beside a
// connection without a tunnel: the far side closes, its kernel forgets, and the
// gate's keep-alive finds nobody.
func TestTunnelTailForgotten(t *testing.T) {
	defer func(was net.KeepAliveConfig) { socket.KeepAlive = was }(socket.KeepAlive)
	socket.KeepAlive.Idle, socket.KeepAlive.Interval = time.Second, time.Second
	data := make([]byte, 768<<10) // which fits into what the gate holds, however few pages its pipe has
	_, _ = rand.Read(data)
	c, k := newTunnelCell(t, nil)
	defer c.End() // before socket.KeepAlive is put back
	through, far := c.open(k)
	direct, near := testnet.Dial(t, k.Addr), k.Next(t)
	for _, up := range []*net.TCPConn{far, near} {
		testnet.Control(t, up, func(fd int) error { return unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_LINGER2, 1) })
		testnet.Send(t, up, data)
		up.Close()
	}
	c.noticed()
	for name, client := range map[string]*net.TCPConn{"through the tunnel": through, "control": direct} {
		if got, err := io.ReadAll(client); err != nil || !bytes.Equal(got, data) {
			t.Errorf("%s: %d bytes, %v", name, len(got), err)
		}
	}
}

// Both ends of a tunnel that stands have keep-alive, so that a peer which vanished is
// found, and send short pieces at once; that it has just begun may be too early for
// the far side, and the next one's is set as well.
func TestTunnelKeepAlive(t *testing.T) {
	testnet.NoLeak(t)
	defer func(was net.KeepAliveConfig) { socket.KeepAlive = was }(socket.KeepAlive)
	socket.KeepAlive.Interval = time.Second
	c, k := newTunnelCell(t, nil)
	defer c.End() // before socket.KeepAlive is put back
	want := [...]struct{ level, name, value int }{
		{unix.IPPROTO_TCP, unix.TCP_NODELAY, 1},
		{unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1},
		{unix.IPPROTO_TCP, unix.TCP_KEEPIDLE, 60},
		{unix.IPPROTO_TCP, unix.TCP_KEEPINTVL, 1},
		{unix.IPPROTO_TCP, unix.TCP_KEEPCNT, 4},
	}
	for range 2 {
		c.open(k)
		testnet.Eventually(t, "keep-alive at both ends", func() bool {
			_, set := c.standing(func(newest *tunnel) bool {
				for _, fd := range []int{newest.client.fd, newest.up.fd} {
					for _, o := range want {
						if got, err := unix.GetsockoptInt(fd, o.level, o.name); err != nil || got != o.value {
							return false
						}
					}
				}
				return true
			})
			return set
		})
	}
}

// A change of policy cuts what is still to be read of a tunnel one end of which
// is gone, too.
func TestPolicyCutsTail(t *testing.T) {
	testnet.NoLeak(t)
	c, set := changing(t, nil)
	k := testnet.NewCanary(t)
	c.Origin("127.0.0.1:443", k.Addr)
	client, up := c.open(k)
	testnet.Send(t, up, make([]byte, 768<<10))
	_ = up.CloseWrite()
	testnet.Arrive(t, up)
	testnet.Reset(up)
	c.noticed()
	set(nil)
	if r := c.Last(1); r.Reason != firewall.ReasonPolicyChanged {
		t.Errorf("record %+v", r)
	}
	if n, err := io.Copy(io.Discard, client); err == nil {
		t.Errorf("%d bytes and an end after the cut", n)
	}
}

// A client that goes away frees its tunnel also while its bytes wait for a far
// side that does not read.
func TestTunnelFreesDeaf(t *testing.T) {
	testnet.NoLeak(t)
	c, k := newTunnelCell(t, nil)
	client, _ := c.open(k)
	testnet.Fill(t, client)
	if stands, _ := c.standing(func(*tunnel) bool { return true }); !stands {
		t.Fatal("control: no tunnel stands")
	}
	testnet.Reset(client)
	if r := c.Last(1); r.Verdict != firewall.Allow {
		t.Errorf("record %+v", r)
	}
	testnet.Eventually(t, "the connection to be counted out", func() bool { return c.server.Open() == 0 })
}

// One that finished before has its bytes passed on, for as long as remainderTime.
func TestTunnelGivesUpTail(t *testing.T) {
	testnet.NoLeak(t)
	defer func(was time.Duration) { remainderTime = was }(remainderTime)
	remainderTime = 50 * time.Millisecond
	c, k := newTunnelCell(t, nil)
	defer c.End() // before remainderTime is put back
	client, up := c.open(k)
	for waits := false; !waits; { // more than the kernels take of it, and all of it with the gate
		testnet.Send(t, client, make([]byte, 100<<10))
		testnet.Arrive(t, client)
		_, waits = c.standing(func(t *tunnel) bool { return t.client.waiting() > 0 })
	}
	_ = client.CloseWrite()
	testnet.Arrive(t, client)
	testnet.Reset(client)
	c.Last(1)
	if n, err := io.Copy(io.Discard, up); err == nil {
		t.Errorf("%d bytes and an end, though they were not all", n)
	}
}

// What the far side says while the gate has not yet looked at the end of connect
// is passed on at once.
func TestTunnelGreeting(t *testing.T) {
	testnet.NoLeak(t)
	for _, ends := range []bool{false, true} {
		c, _ := newTunnelCell(t, nil)
		ln, at := testnet.Full(t, 1)
		addr := at.String()
		c.Origin("127.0.0.1:443", addr)
		client := testnet.Dial(t, c.tls)
		testnet.Send(t, client, testnet.HelloFor("site.example"))
		testnet.Eventually(t, "the dial", func() bool { return len(c.Dials()) == 1 })
		resume := make(chan struct{})
		for _, w := range admission.Running() {
			w.Post(func() { <-resume })
		}
		defer unix.Close(accept(t, ln)) // makes room
		far := accept(t, ln)            // the kernel has connected, and the loop has not looked
		if _, err := unix.Write(far, []byte("greeting")); err != nil {
			t.Fatal(err)
		}
		if ends {
			unix.Close(far)
		} else {
			defer unix.Close(far)
		}
		close(resume)
		if got := testnet.ReadN(t, client, 8); string(got) != "greeting" {
			t.Errorf("got %q", got)
		}
		if ends {
			if _, err := client.Read(make([]byte, 1)); err != io.EOF {
				t.Errorf("after the end: %v", err)
			}
		}
		c.End()
	}
}

func accept(t *testing.T, ln int) (fd int) {
	t.Helper()
	fd, _, err := unix.Accept4(ln, unix.SOCK_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	return fd
}

// A connection that comes about for a tunnel that has panicked meanwhile is closed.
func TestLoopPanicsWhileDialling(t *testing.T) {
	testnet.NoLeak(t)
	proxy := testnet.NewCanary(t)
	c := newCell(t, "strict", func(s *server) {
		s.Policy = testcell.Via(t)
		s.Proxy = func(string) (reach.Proxy, bool) { return reach.Proxy{Addr: netip.MustParseAddrPort(proxy.Addr)}, true }
	})
	c.Origin(proxy.Addr, proxy.Addr)
	client := testnet.Dial(t, c.tls)
	testnet.Send(t, client, testnet.HelloFor("other.example"))
	up := proxy.Next(t)
	testnet.ReadN(t, up, len("CONNECT other.example:443 HTTP/1.1\r\nHost: other.example:443\r\n\r\n"))
	for _, w := range admission.Running() {
		w.Post(func() {
			for fd := range 1 << 16 {
				if e, ok := w.Handler(fd).(*end); ok {
					e.tunnel.Panicked(errors.New("a test"))
				}
			}
		})
	}
	testnet.WantCut(t, client)
	_, _ = io.WriteString(up, "HTTP/1.1 200 OK\r\n\r\n") // may be cut already
	testnet.WantCut(t, up)
	if r := c.Last(1); r.Host != "other.example" {
		t.Errorf("record %+v", r)
	}
}
