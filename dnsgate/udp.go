package dnsgate

import (
	"fmt"
	"net"
	"net/netip"
	"time"

	"golang.org/x/net/ipv4"
)

const (
	// maxQuery is how much of a message is read. An honest query has less than 600
	// bytes; what is beyond is cut and so, like any garbage behind it, ignored.
	maxQuery = 2048
	// maxBatch is the most messages that are read, and replies that are sent, in
	// one call of the kernel. More save little, and each costs its two buffers.
	maxBatch = 32
)

// serveUDP answers the queries on pc until it is closed, as many at a time as
// have arrived. An answer is made from memory in microseconds, so that one
// goroutine does, and a flood cannot make more. The records of a batch are
// flushed at once, and before its replies are sent.
func (c *cell) serveUDP(pc *net.UDPConn) error {
	w, conn := c.newAnswerer(), ipv4.NewPacketConn(pc)
	in, out := newBatch(maxQuery), newBatch(maxReply)
	for {
		n, err := conn.ReadBatch(in, 0)
		if err != nil {
			return fmt.Errorf("dnsgate: read from UDP: %w", err)
		}
		replies := 0
		w.now = time.Now() // for all of the batch, which takes microseconds
		for i := range in[:n] {
			client := clientOf(in[i].Addr)
			if !c.admit(client, w.now) {
				continue
			}
			reply := w.answer(in[i].Buffers[0][:in[i].N], client)
			if reply == nil {
				continue
			}
			m := &out[replies]
			m.Buffers[0] = append(m.Buffers[0][:0], reply[2:]...)
			m.Addr = in[i].Addr
			replies++
		}
		if c.delivered() {
			send(conn, out[:replies])
		}
	}
}

// newBatch makes messages with a buffer of this length each.
func newBatch(length int) []ipv4.Message {
	batch := make([]ipv4.Message, maxBatch)
	for i := range batch {
		batch[i].Buffers = [][]byte{make([]byte, length)}
	}
	return batch
}

// send sends replies. One that cannot be sent is a lost packet: the client asks
// again.
func send(conn *ipv4.PacketConn, replies []ipv4.Message) {
	for len(replies) > 0 {
		n, err := conn.WriteBatch(replies, 0)
		if err != nil {
			n = 1 // the first failed, or n would count those before it
		}
		replies = replies[n:]
	}
}

// admit counts and refuses queries of strangers, those over the rate and those
// over the budget.
func (c *cell) admit(client netip.AddrPort, now time.Time) bool {
	if !c.Prefix.Contains(client.Addr()) {
		c.foreign.Add(client)
		return false
	}
	if !c.limiter.AllowN(now, 1) {
		c.flood.Add(client)
		return false
	}
	if !c.Meter.Query() {
		c.spent.Add(client)
		return false
	}
	return true
}

// clientOf is the source of a packet; the zero value, which is in no prefix,
// where it has none.
func clientOf(a net.Addr) netip.AddrPort {
	if u, ok := a.(*net.UDPAddr); ok {
		return unmap(u.AddrPort())
	}
	return netip.AddrPort{}
}

func unmap(a netip.AddrPort) netip.AddrPort {
	return netip.AddrPortFrom(a.Addr().Unmap(), a.Port())
}
