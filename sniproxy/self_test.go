package sniproxy

import (
	"bytes"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"sallyport/firewall"
	"sallyport/sniproxy/refusal"
	"sallyport/sniproxy/testnet"
)

const apart = "SALLYPORT_TEST_APART" // is set in the process with a network of its own

// A name that leads to a public address of the gate itself is not dialled,
// whatever listens there. The test makes a network of its own that has such an
// address.
//
// probe: R7
// oracle: a listener on all addresses, which is reached by none of them, and then by
// one that an entry admits; the records
func TestTunnelToItself(t *testing.T) {
	if os.Getenv(apart) == "" {
		cmd := exec.Command("/proc/self/exe", "-test.run=^TestTunnelToItself$", "-test.timeout=1m")
		cmd.Env = append(os.Environ(), apart+"=1")
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
		if id := os.Getuid(); id != 0 { // who is not root is so in a user namespace
			cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
			cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: id, Size: 1}}
			cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}
		}
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("in a network of its own: %v\n%s", err, out)
		}
		return
	}
	own := []string{"1.2.3.4/24", "1.2.3.5/24", "2606:4700::1234/64"} // the second is reached from the first
	ownNetwork(t, own)
	k := testnet.NewCanaryAt(t, ":443")
	c := newCell(t, "open", func(s *Server) { s.Route = nil })
	raw := testnet.Record(testnet.Message(testnet.SNI("own.example")))
	for i, addr := range own {
		c.Resolver.Set("own.example", netip.MustParsePrefix(addr).Addr().String())
		client := testnet.Dial(t, c.tls)
		testnet.Send(t, client, raw)
		if got, _ := io.ReadAll(client); !bytes.Equal(got, refusal.AccessDenied.Record()) {
			t.Errorf("%s: the client got %x", addr, got)
		}
		if r := c.Last(i + 1); r.Verdict != firewall.Deny || r.Reason != firewall.ReasonAddress {
			t.Errorf("%s: record %+v", addr, r)
		}
	}

	if n := k.Count.Load(); n != 0 {
		t.Errorf("the gate's own listener was reached %d times", n)
	}
	// No device has this one, so that only the connection itself shows where it leads.
	dst := &net.IPNet{IP: net.IPv4(5, 6, 7, 8), Mask: net.CIDRMask(32, 32)}
	lo, err := netlink.LinkByName("lo")
	if err == nil {
		err = netlink.RouteAdd(&netlink.Route{LinkIndex: lo.Attrs().Index, Dst: dst, Type: unix.RTN_LOCAL, Table: unix.RT_TABLE_LOCAL, Scope: netlink.SCOPE_HOST})
	}
	if err != nil {
		t.Fatal(err)
	}
	c.Resolver.Set("own.example", "5.6.7.8")
	client := testnet.Dial(t, c.tls)
	testnet.Send(t, client, raw)
	if got, _ := io.ReadAll(client); !bytes.Equal(got, refusal.AccessDenied.Record()) {
		t.Errorf("a route to oneself: the client got %x", got)
	}
	if r := c.Last(len(own) + 1); r.Verdict != firewall.Deny || r.Reason != firewall.ReasonAddress {
		t.Errorf("a route to oneself: record %+v", r)
	}
	if got, err := io.ReadAll(k.Next(t)); len(got) != 0 || err == nil {
		t.Errorf("a route to oneself: the listener got %x, %v, want a connection that is cut", got, err)
	}

	admitted := newCell(t, "strict", func(s *Server) { s.Route = nil })
	hello := testnet.Record(testnet.Message(testnet.SNI("site.example")))
	testnet.Send(t, testnet.Dial(t, admitted.tls), hello)
	if got := testnet.ReadN(t, k.Next(t), len(hello)); !bytes.Equal(got, hello) {
		t.Errorf("control: the listener got %x", got)
	}
}

// ownNetwork gives the loopback device addresses.
func ownNetwork(t *testing.T, addrs []string) {
	t.Helper()
	lo, err := netlink.LinkByName("lo")
	if err == nil {
		err = netlink.LinkSetUp(lo)
	}
	for _, a := range addrs {
		var addr *netlink.Addr
		if err == nil {
			addr, err = netlink.ParseAddr(a)
		}
		if err == nil {
			err = netlink.AddrAdd(lo, addr)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
}
