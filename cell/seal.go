package cell

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"reflect"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Seal seals the network namespace of the calling process: it installs the
// packet filter, removes every way out but the gate's segment, and reads both
// back from the kernel. It needs CAP_NET_ADMIN. After an error the namespace must
// not be used.
func Seal(gate netip.Addr) error {
	if !gate.Is4() || gate.IsLoopback() || gate.IsUnspecified() {
		return fmt.Errorf("gate address %q is not an IPv4 address on a network", gate)
	}
	if err := checkDevices(); err != nil {
		return err
	}
	own, err := ownPorts()
	if err != nil {
		return err
	}
	c, err := nftables.New()
	if err != nil {
		return fmt.Errorf("open the packet filter: %w", err)
	}
	want := filter(gate, own)
	if err := install(c, want); err != nil {
		return err
	}
	if err := cutRoutes(gate); err != nil {
		return err
	}
	return errors.Join(verifyFilter(c, want), verifyRoutes(gate))
}

// checkDevices refuses a namespace with more than one network: a cell has the
// gate's and no other.
func checkDevices() error {
	links, err := netlink.LinkList()
	if err != nil {
		return fmt.Errorf("list the network devices: %w", err)
	}
	var names []string
	for _, l := range links {
		// The kernel may put tunnel devices, which are down, into every namespace.
		if a := l.Attrs(); a.Index != loopbackIndex && a.Flags&net.FlagUp != 0 {
			names = append(names, a.Name)
		}
	}
	if len(names) != 1 {
		return fmt.Errorf("the namespace has the networks %q, not one", names)
	}
	return nil
}

// ownPorts are those that the kernel chooses for the namespace's connections. Whoever
// makes the namespace has to have made them few.
func ownPorts() (r portRange, err error) {
	const name = "/proc/sys/net/ipv4/ip_local_port_range"
	text, err := os.ReadFile(name)
	if err != nil {
		return r, fmt.Errorf("read the ports of the namespace: %w", err)
	}
	if _, err := fmt.Sscan(string(text), &r.low, &r.high); err != nil {
		return r, fmt.Errorf("read the ports of the namespace: %s has %q: %w", name, text, err)
	}
	if n := int(r.high) - int(r.low) + 1; n < 1 || n > maxPorts {
		return r, fmt.Errorf("the namespace uses %d ports, from %d to %d, a cell may have %d: set net.ipv4.ip_local_port_range",
			n, r.low, r.high, maxPorts)
	}
	return r, nil
}

// verifyFilter compares the namespace's rules with the wanted ones.
func verifyFilter(c *nftables.Conn, want []chain) error {
	t := &nftables.Table{Family: nftables.TableFamilyINet, Name: tableName}
	for _, w := range want {
		got, err := c.ListChain(t, w.name)
		if err != nil {
			return fmt.Errorf("read back the chain %s: %w", w.name, err)
		}
		if got.Hooknum == nil || *got.Hooknum != *w.hook || got.Type != nftables.ChainTypeFilter ||
			got.Priority == nil || *got.Priority != *w.priority() || got.Policy == nil || *got.Policy != w.policy() {
			return fmt.Errorf("the chain %s is not what was installed", w.name)
		}
		rules, err := c.GetRules(t, got)
		if err != nil {
			return fmt.Errorf("read back the rules of %s: %w", w.name, err)
		}
		if len(rules) != len(w.rules) {
			return fmt.Errorf("the chain %s has %d rules, installed were %d", w.name, len(rules), len(w.rules))
		}
		for i, r := range rules {
			if !reflect.DeepEqual(r.Exprs, w.rules[i]) {
				return fmt.Errorf("rule %d of the chain %s is not what was installed", i+1, w.name)
			}
		}
	}
	return nil
}

// families are those whose routes are cut.
var families = []int{netlink.FAMILY_V4, netlink.FAMILY_V6}

// cutRoutes removes every route through a router and puts an unreachable default
// in its place, so that a packet for elsewhere is refused without a look at the
// neighbours.
func cutRoutes(gate netip.Addr) error {
	for _, family := range families {
		routes, err := mainRoutes(family)
		if err != nil {
			return err
		}
		for _, r := range routes {
			if staysOnSegment(r, gate) {
				continue
			}
			if err := netlink.RouteDel(&r); err != nil {
				return fmt.Errorf("remove the route %s: %w", r, err)
			}
		}
	}
	err := netlink.RouteReplace(&netlink.Route{Dst: everywhere(), Type: unix.RTN_UNREACHABLE})
	if err != nil {
		return fmt.Errorf("make the rest unreachable: %w", err)
	}
	return nil
}

func everywhere() *net.IPNet {
	return &net.IPNet{IP: net.IPv4zero.To4(), Mask: net.CIDRMask(0, 32)}
}

func mainRoutes(family int) ([]netlink.Route, error) {
	routes, err := netlink.RouteListFiltered(family, &netlink.Route{Table: unix.RT_TABLE_MAIN}, netlink.RT_FILTER_TABLE)
	if err != nil {
		return nil, fmt.Errorf("list the routes: %w", err)
	}
	return routes, nil
}

// staysOnSegment says whether r is the route to the segment of the gate itself.
func staysOnSegment(r netlink.Route, gate netip.Addr) bool {
	return r.Gw == nil && len(r.MultiPath) == 0 && r.Via == nil && r.Type == unix.RTN_UNICAST &&
		r.Scope == netlink.SCOPE_LINK && r.Dst != nil && prefixLen(r.Dst) > 0 && r.Dst.Contains(gate.AsSlice())
}

func prefixLen(n *net.IPNet) int {
	ones, _ := n.Mask.Size()
	return ones
}

// verifyRoutes says whether the namespace has the route to the gate's segment, an
// unreachable default, and no other.
func verifyRoutes(gate netip.Addr) error {
	var segment, closed bool
	for _, family := range families {
		routes, err := mainRoutes(family)
		if err != nil {
			return err
		}
		for _, r := range routes {
			switch {
			case staysOnSegment(r, gate):
				segment = true
			case r.Type == unix.RTN_UNREACHABLE:
				closed = closed || family == netlink.FAMILY_V4 && (r.Dst == nil || prefixLen(r.Dst) == 0)
			default:
				return fmt.Errorf("the route %s is left", r)
			}
		}
	}
	if !segment {
		return fmt.Errorf("no network of this namespace holds the gate %s", gate)
	}
	if !closed {
		return errors.New("there is no unreachable default route")
	}
	return nil
}
