package dnsgate

import (
	"fmt"
	"net"
	"net/netip"
)

// maxQuery is how much of a message is read. An honest query has less than 600
// bytes; what is beyond is cut and so, like any garbage behind it, ignored.
const maxQuery = 4096

// serveUDP answers the queries on pc one after another until it is closed: an
// answer is made from memory in microseconds, so that one goroutine does, and
// a flood cannot make more.
func (c *cell) serveUDP(pc *net.UDPConn) error {
	w := c.newAnswerer()
	buf := make([]byte, maxQuery)
	for {
		n, client, err := pc.ReadFromUDPAddrPort(buf)
		if err != nil {
			return fmt.Errorf("dnsgate: read from UDP: %w", err)
		}
		client = unmap(client)
		if !c.admit(client) {
			continue
		}
		if reply := w.answer(buf[:n], client); reply != nil {
			// A reply that cannot be sent is a lost packet: the client asks again.
			_, _ = pc.WriteToUDPAddrPort(reply[2:], client)
		}
	}
}

// admit counts and refuses queries of strangers and those over the rate.
func (c *cell) admit(client netip.AddrPort) bool {
	if !c.Prefix.Contains(client.Addr()) {
		c.foreign.add(client)
		return false
	}
	if !c.limiter.Allow() {
		c.flood.add(client)
		return false
	}
	return true
}

func unmap(a netip.AddrPort) netip.AddrPort {
	return netip.AddrPortFrom(a.Addr().Unmap(), a.Port())
}
