package reach

import (
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"

	"sallyport/firewall"
	"sallyport/sniproxy/refusal"
	"sallyport/sniproxy/socket"
)

// ownKept is how long the machine's addresses are taken for what they were.
const ownKept = time.Second

// ownAddresses are this machine's addresses. The zero value finds them when first
// asked.
type ownAddresses struct {
	mu    sync.Mutex // guards those below
	read  time.Time
	addrs map[netip.Addr]struct{}
}

// refuse refuses an answer that leads back to the machine that it came to, by an
// address that the floor takes for a host of the internet. Private ones need no such
// look, since only an entry of the allowlist admits them.
func (o *ownAddresses) refuse(answer []netip.Addr) *refusal.Refusal {
	for _, a := range answer {
		if public, _ := firewall.JudgeAddr(a); !public {
			continue
		}
		switch own, err := o.has(a); {
		case err != nil:
			return addressRefused("the gate's own addresses: " + firewall.Escape(err.Error(), 200))
		case own:
			return addressRefused(a.String() + " is the gate's own address")
		}
	}
	return nil
}

func (o *ownAddresses) has(a netip.Addr) (bool, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.addrs == nil || time.Since(o.read) > ownKept {
		list, err := net.InterfaceAddrs()
		if err != nil {
			return false, fmt.Errorf("list them: %w", err)
		}
		o.read, o.addrs = time.Now(), make(map[netip.Addr]struct{}, len(list))
		for _, l := range list {
			if n, ok := l.(*net.IPNet); ok {
				addr, _ := netip.AddrFromSlice(n.IP)
				o.addrs[addr.Unmap()] = struct{}{}
			}
		}
	}
	_, own := o.addrs[a]
	return own, nil
}

// isOwn reports the same of a connection that has been made. Private addresses need no
// look.
func (d *Dial) isOwn(c Conn) bool {
	if public, _ := firewall.JudgeAddr(c.Addr.Addr()); !public {
		return false
	}
	local, _ := socket.Local(c.FD)
	return isSelf(local.Addr(), c.Addr.Addr())
}

// isSelf reports the same of a connection that has been made: dialling a local
// address, the kernel mostly uses it as the source as well, also one that no device
// has, or has had for a moment only.
func isSelf(local, remote netip.Addr) bool {
	public, _ := firewall.JudgeAddr(remote)
	return local == remote && public
}
