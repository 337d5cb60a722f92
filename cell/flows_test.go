package cell

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

var gateDNS = netip.AddrPortFrom(gateAddr, 53)

// track has a namespace keep a table of connections, as any rule about them does.
func track(t *testing.T, ns netns.NsHandle) {
	t.Helper()
	inside(t, ns, func() error {
		c, err := nftables.New()
		if err != nil {
			return err
		}
		table := c.AddTable(&nftables.Table{Family: nftables.TableFamilyINet, Name: "tracking"})
		for name, hook := range map[string]*nftables.ChainHook{"in": nftables.ChainHookInput, "out": nftables.ChainHookOutput} {
			chain := c.AddChain(&nftables.Chain{Name: name, Table: table, Type: nftables.ChainTypeFilter,
				Hooknum: hook, Priority: nftables.ChainPriorityFilter})
			c.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: []expr.Any{
				&expr.Ct{Register: 1, Key: expr.CtKeySTATE}, &expr.Verdict{Kind: expr.VerdictAccept}}})
		}
		return c.Flush()
	})
}

// tracked is how many connections a namespace's table has.
func tracked(t *testing.T, ns netns.NsHandle) (n int) {
	t.Helper()
	inside(t, ns, func() error {
		text, err := os.ReadFile("/proc/sys/net/netfilter/nf_conntrack_count")
		if err != nil {
			return err
		}
		n, err = strconv.Atoi(string(bytes.TrimSpace(text)))
		return err
	})
	return n
}

// fromEach sends a datagram from each port of a range and says how many the kernel
// took. Now and then it asks the gate and waits for the answer, so that none is lost in
// a queue.
func fromEach(t *testing.T, ns netns.NsHandle, low, high int, to netip.AddrPort) (taken int) {
	t.Helper()
	inside(t, ns, func() error {
		for p := low; p <= high; p++ {
			if (p-low)%100 == 0 {
				if err := ask(gateDNS); err != nil {
					return err
				}
			}
			c, err := net.DialUDP("udp4", &net.UDPAddr{Port: p}, net.UDPAddrFromAddrPort(to))
			if err != nil {
				return err
			}
			_, err = c.Write([]byte("q"))
			c.Close()
			if err == nil {
				taken++
			} else if !errors.Is(err, unix.EPERM) && !errors.Is(err, unix.ECONNREFUSED) {
				return err
			}
		}
		return nil
	})
	return taken
}

// TestFewFlows sends from all ports to the gate's, and over the loopback device. The
// far side's table stands for the host's, which sees the same packets.
//
// probe: X30
// oracle: the kernel's tables of connections on both sides; before the cell is sealed
// they have all of them
func TestFewFlows(t *testing.T) {
	const low, high = 1024, 9023 // none that the kernel would choose
	dns, own := gateDNS, netip.MustParseAddrPort("127.0.0.1:5000")
	newCell := func() world {
		w := newWorld(t)
		track(t, w.far)
		track(t, w.cell)
		echo(t, w.far, "udp", dns)
		echo(t, w.far, "tcp", dns)
		return w
	}
	w := newCell()
	fromEach(t, w.cell, low, high, dns)
	fromEach(t, w.cell, low, high, own)
	if there, here := tracked(t, w.far), tracked(t, w.cell); there < high-low || here < 2*(high-low) {
		t.Fatalf("control: %d and %d connections are known of a cell that is not sealed", there, here)
	}

	w = newCell()
	inside(t, w.cell, func() error { return Seal(gateAddr) })
	began := time.Now()
	taken := fromEach(t, w.cell, low, high, dns)
	others := otherBurst + otherRate*(1+int(time.Since(began)/time.Second))
	if taken < otherBurst || taken > others {
		t.Errorf("%d datagrams passed from ports of the sandbox's choice, want %d to %d", taken, otherBurst, others)
	}
	fromEach(t, w.cell, low, high, own)
	if n, asked := tracked(t, w.far), 2*(high-low+100)/100; n > taken+asked {
		t.Errorf("%d connections are known of %d datagrams and %d queries", n, taken, asked)
	}
	if n := tracked(t, w.cell); n != 0 {
		t.Errorf("%d connections are known in the cell itself", n)
	}
	inside(t, w.cell, func() error { return connectFrom(low, dns, unix.ECONNREFUSED) })
	inside(t, w.cell, func() error { return connectFrom(ownLow, dns, nil) })
	manyQueries(t, w, dns)
	if n, most := tracked(t, w.far), taken+ownHigh-ownLow+2; n > most { // and one by TCP
		t.Errorf("%d connections are known of a cell, want at most %d", n, most)
	}
}

// connectFrom connects from a port of the caller's choice.
func connectFrom(port int, to netip.AddrPort, want error) error {
	d := net.Dialer{LocalAddr: &net.TCPAddr{Port: port}, Timeout: 5 * time.Second}
	c, err := d.Dial("tcp4", to.String())
	if err == nil {
		c.Close()
	}
	if !errors.Is(err, want) {
		return fmt.Errorf("a connection from port %d: %v, want %v", port, err, want)
	}
	return nil
}

// manyQueries asks as an honest program does, each time from a port that the kernel
// chooses: twice as often as there are ports, without a pause.
func manyQueries(t *testing.T, w world, to netip.AddrPort) {
	t.Helper()
	inside(t, w.cell, func() error {
		for i := range 2 * maxPorts {
			if err := ask(to); err != nil {
				return fmt.Errorf("query %d: %w", i+1, err)
			}
		}
		return nil
	})
}

// ask sends a datagram from a port that the kernel chooses and waits for the answer.
func ask(to netip.AddrPort) error {
	c, err := net.Dial("udp4", to.String())
	if err != nil {
		return err
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(5 * time.Second))
	if _, err := c.Write([]byte("q")); err != nil {
		return err
	}
	_, err = c.Read(make([]byte, 16))
	return err
}

// TestFewLocalConnections has a cell connect to itself as often as it can.
//
// probe: X30
// oracle: the kernel's refusal; as many as are allowed succeed, and others once those
// are closed
func TestFewLocalConnections(t *testing.T) {
	w := newWorld(t)
	inside(t, w.cell, func() error {
		if err := Seal(gateAddr); err != nil {
			return err
		}
		var files unix.Rlimit
		if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &files); err != nil || files.Cur < 4*maxLocal {
			return fmt.Errorf("this test needs %d open files, there may be %d: %v", 4*maxLocal, files.Cur, err)
		}
		// Two listeners, since one cannot have more connections than there are ports.
		var ends []net.Conn
		open := func(l net.Listener) error {
			c, err := net.DialTimeout("tcp4", l.Addr().String(), 5*time.Second)
			if err != nil {
				return err
			}
			ends = append(ends, c)
			if c, err = l.Accept(); err == nil {
				ends = append(ends, c)
			}
			return err
		}
		defer func() {
			for _, c := range ends {
				c.Close()
			}
		}()
		var listeners [2]net.Listener
		for i := range listeners {
			l, err := net.Listen("tcp4", fmt.Sprintf("127.0.0.1:%d", 5000+i))
			if err != nil {
				return err
			}
			defer l.Close()
			listeners[i] = l
		}
		for i := range maxLocal {
			if err := open(listeners[i%2]); err != nil {
				return fmt.Errorf("connection %d: %w", i+1, err)
			}
		}
		for i := range 100 {
			if err := open(listeners[i%2]); !errors.Is(err, unix.ECONNREFUSED) {
				return fmt.Errorf("connection %d: %v, want a refusal", maxLocal+i+1, err)
			}
		}
		for _, c := range ends[:400] {
			c.Close()
		}
		ends = ends[400:]
		for i := range 100 {
			if err := open(listeners[i%2]); err != nil {
				return fmt.Errorf("once others are closed: %w", err)
			}
		}
		return nil
	})
}
