package cell

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"sallyport/entrypoint/probe"
)

// closed are the ways that must be closed in a sealed cell. Each reaches its
// target, or at least the canary, as long as the cell is not sealed.
func closed(phase string, canary int) []probe.Probe {
	at := func(a netip.Addr, port int) string { return netip.AddrPortFrom(a, uint16(port)).String() }
	any4 := netip.IPv4Unspecified()
	probes := []probe.Probe{
		{ID: "gate-other-port-tcp", Kind: probe.TCP, Address: at(gateAddr, 8080)},
		{ID: "gate-other-port-udp", Kind: probe.UDP, Address: at(gateAddr, 443)},
		{ID: "gate-canary", Kind: probe.TCP, Address: at(gateAddr, canary)},
		{ID: "gate-ping", Kind: probe.ICMP, Address: gateAddr.String()},
		{ID: "host-tcp", Kind: probe.TCP, Address: at(hostAddr, canary)},
		{ID: "host-udp", Kind: probe.UDP, Address: at(hostAddr, canary)},
		{ID: "far-tcp", Kind: probe.TCP, Address: at(farAddr, canary)},
		{ID: "far-udp", Kind: probe.UDP, Address: at(farAddr, canary)},
		{ID: "far-tcp-dontroute", Kind: probe.TCPDontRoute, Address: at(farAddr, canary)},
		{ID: "far-udp-dontroute", Kind: probe.UDPDontRoute, Address: at(farAddr, canary)},
		{ID: "host-udp-dontroute", Kind: probe.UDPDontRoute, Address: at(hostAddr, canary)},
		{ID: "broadcast", Kind: probe.UDPBroadcast, Address: at(any4, canary)},
		{ID: "multicast", Kind: probe.UDPMulticast, Address: at(any4, canary)},
		{ID: "ipv6", Kind: probe.IPv6, Address: at(farAddr6, canary)},
		{ID: "embedded-resolver-udp", Kind: probe.UDP, Address: at(resolver, 53)},
		{ID: "embedded-resolver-tcp", Kind: probe.TCP, Address: at(resolver, 53)},
	}
	return named(phase, probes)
}

// open are the ways that a sealed cell leaves.
func open(phase string) []probe.Probe {
	probes := []probe.Probe{
		{ID: "own-loopback", Kind: probe.TCP, Address: "127.0.0.1:5000"},
		{ID: "own-address", Kind: probe.UDP, Address: netip.AddrPortFrom(sandboxAddr, 5000).String()},
	}
	for _, p := range tcpPorts {
		probes = append(probes, probe.Probe{ID: fmt.Sprintf("gate-tcp-%d", p), Kind: probe.TCP,
			Address: netip.AddrPortFrom(gateAddr, p).String()})
	}
	for _, p := range udpPorts {
		probes = append(probes, probe.Probe{ID: fmt.Sprintf("gate-udp-%d", p), Kind: probe.UDP,
			Address: netip.AddrPortFrom(gateAddr, p).String()})
	}
	return named(phase, probes)
}

// timeout is long enough that what is refused at once ends long before.
const timeout = 5000

func named(phase string, probes []probe.Probe) []probe.Probe {
	for i := range probes {
		probes[i].Payload = phase + "/" + probes[i].ID
		probes[i].TimeoutMS = timeout
	}
	return probes
}

// probe: N1, N2, N3, N4, N5, N8, N12, X2, D2
// oracle: listeners and a canary in the namespace on the far side, which hear every one
// of the probes before the cell is sealed, and none after
func TestSealedCellReachesOnlyTheGate(t *testing.T) {
	w := newWorld(t)
	canary := startCanary(t, w.far)
	for _, p := range tcpPorts {
		echo(t, w.far, "tcp", netip.AddrPortFrom(gateAddr, p))
	}
	for _, p := range udpPorts {
		echo(t, w.far, "udp", netip.AddrPortFrom(gateAddr, p))
	}
	echo(t, w.far, "tcp", netip.AddrPortFrom(gateAddr, 8080))
	echo(t, w.far, "udp", netip.AddrPortFrom(gateAddr, 443))
	echo(t, w.cell, "udp", netip.AddrPortFrom(resolver, 53))
	echo(t, w.cell, "tcp", netip.AddrPortFrom(resolver, 53))
	echo(t, w.cell, "tcp", netip.MustParseAddrPort("127.0.0.1:5000"))
	echo(t, w.cell, "udp", netip.AddrPortFrom(sandboxAddr, 5000))
	inside(t, w.cell, func() error {
		return os.WriteFile("/proc/sys/net/ipv4/ping_group_range", []byte("0 65535"), 0)
	})

	before := tryAll(t, w.cell, append(closed("before", canary.port), open("before")...))
	for id, r := range before {
		if !r.Reached && !canary.heard("before/"+id) {
			t.Errorf("control: %s reaches nothing in a cell that is not sealed: %s", id, r.Detail)
		}
	}

	k := startKeeper(t, w.cell, nil)
	if k.said != "ready\n" {
		t.Fatalf("the keeper said %q: %s", k.said, k.stderr.String())
	}
	sealed := func(phase string) {
		for id, r := range tryAll(t, w.cell, closed(phase, canary.port)) {
			if r.Reached || canary.heard(phase+"/"+id) {
				t.Errorf("%s: %s got through: %s", phase, id, r.Detail)
			}
			if r.Millis >= timeout || strings.Contains(r.Detail, "timeout") {
				t.Errorf("%s: %s was not refused at once: %s", phase, id, r.Detail)
			}
		}
		for id, r := range tryAll(t, w.cell, open(phase)) {
			if !r.Reached {
				t.Errorf("%s: %s does not get through: %s", phase, id, r.Detail)
			}
		}
	}
	sealed("sealed")
	k.stop(t)
	sealed("without keeper")
}

// TestNoIPOptions: a source route would carry a packet past its address.
//
// probe: N12
// oracle: the kernel's word: the packet passes before the cell is sealed, and one
// without options after
func TestNoIPOptions(t *testing.T) {
	w := newWorld(t)
	echo(t, w.far, "udp", netip.AddrPortFrom(gateAddr, 53))
	send := func(options string) error {
		c, err := net.Dial("udp4", netip.AddrPortFrom(gateAddr, 53).String())
		if err != nil {
			return err
		}
		defer c.Close()
		raw, err := c.(*net.UDPConn).SyscallConn()
		if err != nil {
			return err
		}
		if options != "" {
			var failed error
			raw.Control(func(fd uintptr) { failed = unix.SetsockoptString(int(fd), unix.IPPROTO_IP, unix.IP_OPTIONS, options) })
			if failed != nil {
				return fmt.Errorf("set the options: %w", failed)
			}
		}
		_, err = c.Write([]byte("x"))
		return err
	}
	const nothing = "\x01\x01\x01\x00" // three no-operations and the end (RFC 791)
	inside(t, w.cell, func() error { return errors.Join(send(""), send(nothing)) })
	inside(t, w.cell, func() error {
		if err := Seal(gateAddr); err != nil {
			return err
		}
		if err := send(""); err != nil {
			t.Errorf("a query without options: %v", err)
		}
		if err := send(nothing); !errors.Is(err, unix.EPERM) {
			t.Errorf("a query with options: %v, not refused by the filter", err)
		}
		return nil
	})
}

// TestKeeperHasNoPrivilege looks at a keeper at work.
//
// probe: X3
// oracle: the kernel's status of each of its threads
func TestKeeperHasNoPrivilege(t *testing.T) {
	w := newWorld(t)
	k := startKeeper(t, w.cell, nil)
	if k.said != "ready\n" {
		t.Fatalf("the keeper said %q: %s", k.said, k.stderr.String())
	}
	defer k.stop(t)
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", k.cmd.Process.Pid))
	if err != nil || len(threads) == 0 {
		t.Fatalf("threads of the keeper: %v, %v", threads, err)
	}
	for _, name := range threads {
		status, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := powerless(status); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if !strings.Contains(string(status), fmt.Sprintf("Uid:\t%[1]d\t%[1]d\t%[1]d\t%[1]d\n", keeperID)) {
			t.Errorf("%s: not the user %d:\n%s", name, keeperID, status)
		}
	}
}

// TestKeeperRefuses starts keepers where no cell is.
//
// probe: X3
// oracle: the keeper's end without the word that lends the cell
func TestKeeperRefuses(t *testing.T) {
	tests := []struct {
		name    string
		prepare func() error
		as      *syscall.Credential
		want    string
	}{
		{name: "without privileges", as: &syscall.Credential{Uid: 1000, Gid: 1000}, want: "install the packet filter"},
		{name: "no network", want: "not one", prepare: func() error {
			l, err := netlink.LinkByName("eth0")
			if err != nil {
				return err
			}
			return netlink.LinkSetDown(l)
		}},
		{name: "not the gate's network", want: "no network of this namespace holds the gate", prepare: func() error {
			l, err := netlink.LinkByName("eth0")
			if err != nil {
				return err
			}
			own := &net.IPNet{IP: sandboxAddr.AsSlice(), Mask: net.CIDRMask(28, 32)}
			if err := netlink.AddrDel(l, &netlink.Addr{IPNet: own}); err != nil {
				return err
			}
			return addAddress("eth0", netip.MustParsePrefix("10.9.8.7/24"))
		}},
		{name: "too many ports", want: "a cell may have 4096", prepare: func() error {
			return os.WriteFile("/proc/sys/net/ipv4/ip_local_port_range", []byte("32768 36864"), 0)
		}},
		{name: "another network", want: "not one", prepare: func() error {
			attrs := netlink.NewLinkAttrs()
			attrs.Name = "eth1"
			if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: "peer1"}); err != nil {
				return err
			}
			if err := addAddress("eth1", netip.MustParsePrefix("10.9.8.7/24")); err != nil {
				return err
			}
			if err := up("peer1"); err != nil {
				return err
			}
			return up("eth1")
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			if tt.prepare != nil {
				inside(t, w.cell, tt.prepare)
			}
			k := startKeeper(t, w.cell, tt.as)
			err := k.cmd.Wait()
			if k.said != "" || err == nil || !strings.Contains(k.stderr.String(), tt.want) {
				t.Errorf("said %q, ended with %v, %q; want an error with %q", k.said, err, k.stderr.String(), tt.want)
			}
		})
	}
}

func TestSealRefusesGate(t *testing.T) {
	for _, a := range []netip.Addr{{}, netip.MustParseAddr("::1"), netip.MustParseAddr("fd00::2"),
		netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("0.0.0.0"), netip.MustParseAddr("::ffff:10.0.0.1")} {
		if err := Seal(a); err == nil || !strings.Contains(err.Error(), "is not an IPv4 address on a network") {
			t.Errorf("Seal(%s): %v", a, err)
		}
	}
}

// TestVerifyNoticesChange changes the filter behind the keeper's back.
//
// probe: X3
// oracle: the kernel's filter, read back; it is as it should be before each change
func TestVerifyNoticesChange(t *testing.T) {
	own := portRange{ownLow, ownHigh}
	other := filter(netip.MustParseAddr("172.31.255.4"), own)
	tests := []struct {
		name   string
		change func(*nftables.Conn, *nftables.Table) error
	}{
		{"another gate", func(c *nftables.Conn, _ *nftables.Table) error { return install(c, other) }},
		{"no table", func(c *nftables.Conn, t *nftables.Table) error { c.DelTable(t); return c.Flush() }},
		{"no rules", func(c *nftables.Conn, t *nftables.Table) error {
			c.FlushChain(&nftables.Chain{Table: t, Name: "output"})
			return c.Flush()
		}},
		{"one more", func(c *nftables.Conn, t *nftables.Table) error {
			c.InsertRule(&nftables.Rule{Table: t, Chain: &nftables.Chain{Table: t, Name: "output"},
				Exprs: []expr.Any{&expr.Verdict{Kind: expr.VerdictAccept}}})
			return c.Flush()
		}},
		{"more ports", func(c *nftables.Conn, _ *nftables.Table) error {
			return install(c, filter(gateAddr, portRange{ownLow, ownHigh + 1}))
		}},
		{"tracked", func(c *nftables.Conn, t *nftables.Table) error {
			c.FlushChain(&nftables.Chain{Table: t, Name: "outgoing"})
			return c.Flush()
		}},
		{"policy", func(c *nftables.Conn, t *nftables.Table) error {
			accept := nftables.ChainPolicyAccept
			c.AddChain(&nftables.Chain{Table: t, Name: "input", Type: nftables.ChainTypeFilter,
				Hooknum: nftables.ChainHookInput, Priority: nftables.ChainPriorityFilter, Policy: &accept})
			return c.Flush()
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			inside(t, w.cell, func() error {
				if err := Seal(gateAddr); err != nil {
					return err
				}
				c, err := nftables.New()
				if err != nil {
					return err
				}
				if err := verifyFilter(c, filter(gateAddr, own)); err != nil {
					return fmt.Errorf("control: %w", err)
				}
				table := &nftables.Table{Family: nftables.TableFamilyINet, Name: tableName}
				if err := tt.change(c, table); err != nil {
					return err
				}
				if verifyFilter(c, filter(gateAddr, own)) == nil {
					t.Error("the change is not noticed")
				}
				return nil
			})
		})
	}
}

// TestVerifyNoticesRoute adds a way around the gate.
//
// probe: X3
// oracle: the kernel's routes, read back
func TestVerifyNoticesRoute(t *testing.T) {
	w := newWorld(t)
	inside(t, w.cell, func() error {
		if err := Seal(gateAddr); err != nil {
			return err
		}
		// Sealing twice must do no harm: a keeper may be started anew.
		if err := Seal(gateAddr); err != nil {
			return fmt.Errorf("the second time: %w", err)
		}
		if err := netlink.RouteReplace(&netlink.Route{Dst: everywhere(), Gw: hostAddr.AsSlice()}); err != nil {
			return err
		}
		if verifyRoutes(gateAddr) == nil {
			t.Error("a default route is not noticed")
		}
		return nil
	})
}

func TestPowerless(t *testing.T) {
	good := "Uid:\t65532\t65532\t65532\t65532\nGid:\t65532\t65532\t65532\t65532\nGroups:\t \n" +
		"CapInh:\t0000000000000000\nCapPrm:\t0000000000000000\nCapEff:\t0000000000000000\n" +
		"CapBnd:\t0000000000000000\nCapAmb:\t0000000000000000\nNoNewPrivs:\t1\n"
	if err := powerless([]byte(good)); err != nil {
		t.Errorf("control: %v", err)
	}
	for _, change := range [][2]string{
		{"Uid:\t65532\t65532", "Uid:\t65532\t0"},
		{"Gid:\t65532", "Gid:\t0"},
		{"Groups:\t ", "Groups:\t0 "},
		{"CapBnd:\t0000000000000000", "CapBnd:\t0000000000001000"},
		{"CapEff:\t0000000000000000", "CapEff:\t"},
		{"NoNewPrivs:\t1", "NoNewPrivs:\t0"},
		{"NoNewPrivs:\t1\n", ""},
		{good, ""},
	} {
		if powerless([]byte(strings.Replace(good, change[0], change[1], 1))) == nil {
			t.Errorf("with %q in place of %q nothing is noticed", change[1], change[0])
		}
	}
}

func TestDropRefusesRoot(t *testing.T) {
	for _, id := range [][2]int{{0, 1}, {1, 0}, {-1, 1}} {
		// What comes after this check fails as well, but has dropped something by then.
		if err := Drop(id[0], id[1], []string{"/nonexistent"}, nil); err == nil || !strings.Contains(err.Error(), "neither may be root") {
			t.Errorf("Drop(%d, %d): %v", id[0], id[1], err)
		}
	}
}
