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

	"sallyport/firewall"
)

const apart = "SALLYPORT_TEST_APART" // is set in the process with a network of its own

// A name that leads to a public address of the gate itself is not tunnelled to,
// whatever listens there. The test makes a network of its own that has such an
// address.
//
// probe: R7
// oracle: a listener at that address, which gets not a byte, and at one that an entry
// admits, which gets the hello; the records
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
	own := []string{"1.2.3.4", "2606:4700::1234"}
	ownNetwork(t, own)
	k := newCanaryAt(t, ":443")
	c := newCell(t, "open", func(s *Server) { s.Dial = nil })
	raw := record(message(sni("own.example")))
	for i, addr := range own {
		c.resolver.set("own.example", addr)
		client := dialTCP(t, c.tls)
		send(t, client, raw)
		if got, _ := io.ReadAll(client); !bytes.Equal(got, alertAccessDenied.record()) {
			t.Errorf("%s: the client got %x", addr, got)
		}
		if got, _ := io.ReadAll(k.next(t)); len(got) != 0 {
			t.Errorf("%s: the gate's own listener got %x", addr, got)
		}
		if r := c.last(i + 1); r.Verdict != firewall.Deny || r.Reason != firewall.ReasonAddress {
			t.Errorf("%s: record %+v", addr, r)
		}
	}

	admitted := newCell(t, "strict", func(s *Server) { s.Dial = nil })
	hello := record(message(sni("site.example")))
	send(t, dialTCP(t, admitted.tls), hello)
	if got := readN(t, k.next(t), len(hello)); !bytes.Equal(got, hello) {
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
		if err == nil {
			ip := netip.MustParseAddr(a)
			mask := net.CIDRMask(ip.BitLen(), ip.BitLen())
			err = netlink.AddrAdd(lo, &netlink.Addr{IPNet: &net.IPNet{IP: ip.AsSlice(), Mask: mask}})
		}
	}
	if err != nil {
		t.Fatal(err)
	}
}
