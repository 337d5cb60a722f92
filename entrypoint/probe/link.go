package probe

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// devices are the network devices but the loopback's.
func devices() []net.Interface {
	all, err := net.Interfaces()
	if err != nil {
		return nil
	}
	var found []net.Interface
	for _, d := range all {
		if d.Flags&net.FlagLoopback == 0 && d.Flags&net.FlagUp != 0 {
			found = append(found, d)
		}
	}
	return found
}

// networks are the IPv4 networks of a device, each with the device's address.
func networks(d net.Interface) []netip.Prefix {
	addrs, err := d.Addrs()
	if err != nil {
		return nil
	}
	var found []netip.Prefix
	for _, a := range addrs {
		if p, err := netip.ParsePrefix(a.String()); err == nil && p.Addr().Is4() {
			found = append(found, p)
		}
	}
	return found
}

// broadcast is the last address of a network.
func broadcast(p netip.Prefix) netip.Addr {
	a := p.Addr().As4()
	for i := p.Bits(); i < 32; i++ {
		a[i/8] |= 1 << (7 - i%8)
	}
	return netip.AddrFrom4(a)
}

// An option is set on a socket before it is used.
type option func(fd int) error

func flag(level, name int) option {
	return func(fd int) error { return unix.SetsockoptInt(fd, level, name, 1) }
}

func bindTo(device string) option {
	return func(fd int) error {
		if err := unix.BindToDevice(fd, device); err != nil {
			return fmt.Errorf("bind to the device %s: %w", device, err)
		}
		return nil
	}
}

func multicastBy(d net.Interface) option {
	return func(fd int) error {
		return unix.SetsockoptIPMreqn(fd, unix.IPPROTO_IP, unix.IP_MULTICAST_IF, &unix.IPMreqn{Ifindex: int32(d.Index)})
	}
}

// dialer makes sockets with options.
func dialer(options ...option) net.Dialer {
	return net.Dialer{Control: func(_, _ string, c syscall.RawConn) error {
		var failed error
		err := c.Control(func(fd uintptr) {
			for _, o := range options {
				if failed = o(int(fd)); failed != nil {
					return
				}
			}
		})
		if err != nil {
			return err
		}
		return failed
	}}
}

// share gives each of n variants its part of a probe's time.
func share(ctx context.Context, n int) time.Duration {
	deadline, _ := ctx.Deadline()
	return time.Until(deadline) / time.Duration(max(n, 1))
}

// A shot is one packet or connection of a probe with several.
type shot struct {
	name, network, address string
	options                []option
}

// fire takes every shot, each with its share of the time. A datagram socket that
// is not connected sends, because a connected one hears only answers from the
// address it sent to, and a broadcast is answered from another.
func fire(ctx context.Context, payload string, shots []shot) finding {
	part := share(ctx, len(shots))
	var variants []variant
	for _, s := range shots {
		variants = append(variants, variant{s.name, func() finding {
			ctx, cancel := context.WithTimeout(ctx, part)
			defer cancel()
			if s.network[:3] == "tcp" {
				return connectTCP(ctx, dialer(s.options...), s.network, s.address, payload)
			}
			return sendLoose(ctx, s, payload)
		}})
	}
	return every(variants)
}

func sendLoose(ctx context.Context, s shot, payload string) finding {
	to, err := net.ResolveUDPAddr(s.network, s.address)
	if err != nil {
		return refused(err)
	}
	config := net.ListenConfig{Control: dialer(s.options...).Control}
	c, err := config.ListenPacket(ctx, s.network, ":0")
	if err != nil {
		return refused(err)
	}
	defer c.Close()
	deadline, _ := ctx.Deadline()
	if err := c.SetDeadline(deadline); err != nil {
		return refused(err)
	}
	if _, err := c.WriteTo([]byte(payload), to); err != nil {
		return refused(err)
	}
	answer := make([]byte, 256)
	n, from, err := c.ReadFrom(answer)
	if err != nil {
		return finding{detail: "sent, no answer: " + err.Error()}
	}
	return finding{reached: true, detail: fmt.Sprintf("%s answered %.64q", from, answer[:n])}
}

func tryTCPDontRoute(ctx context.Context, p Probe) finding { return pastRoutes(ctx, p, "tcp4") }
func tryUDPDontRoute(ctx context.Context, p Probe) finding { return pastRoutes(ctx, p, "udp4") }

func pastRoutes(ctx context.Context, p Probe, network string) finding {
	var shots []shot
	for _, d := range devices() {
		shots = append(shots, shot{d.Name, network, p.Address,
			[]option{flag(unix.SOL_SOCKET, unix.SO_DONTROUTE), bindTo(d.Name)}})
	}
	return fire(ctx, p.Payload, shots)
}

func tryBroadcast(ctx context.Context, p Probe) finding {
	_, port, err := net.SplitHostPort(p.Address)
	if err != nil {
		return refused(err)
	}
	all := net.JoinHostPort("255.255.255.255", port)
	allowed := flag(unix.SOL_SOCKET, unix.SO_BROADCAST)
	shots := []shot{{"255.255.255.255", "udp4", all, []option{allowed}}}
	for _, d := range devices() {
		shots = append(shots, shot{"255.255.255.255 by " + d.Name, "udp4", all, []option{allowed, bindTo(d.Name)}})
		for _, n := range networks(d) {
			last := broadcast(n).String()
			shots = append(shots, shot{last, "udp4", net.JoinHostPort(last, port), []option{allowed}})
		}
	}
	return fire(ctx, p.Payload, shots)
}

func tryMulticast(ctx context.Context, p Probe) finding {
	_, port, err := net.SplitHostPort(p.Address)
	if err != nil {
		return refused(err)
	}
	group := net.JoinHostPort("224.0.0.1", port)
	shots := []shot{{"224.0.0.1", "udp4", group, nil}}
	for _, d := range devices() {
		shots = append(shots,
			shot{"224.0.0.1 by " + d.Name, "udp4", group, []option{multicastBy(d)}},
			shot{"224.0.0.1 on " + d.Name, "udp4", group, []option{bindTo(d.Name), multicastBy(d)}})
	}
	return fire(ctx, p.Payload, shots)
}

func tryIPv6(ctx context.Context, p Probe) finding {
	_, port, err := net.SplitHostPort(p.Address)
	if err != nil {
		return refused(err)
	}
	shots := []shot{{"udp", "udp6", p.Address, nil}, {"tcp", "tcp6", p.Address, nil}}
	for _, d := range devices() {
		nodes := net.JoinHostPort("ff02::1%"+d.Name, port)
		shots = append(shots, shot{"ff02::1 by " + d.Name, "udp6", nodes, []option{bindTo(d.Name)}})
	}
	return fire(ctx, p.Payload, shots)
}
