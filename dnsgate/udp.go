package dnsgate

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"sallyport/internal/evloop"
)

// A socket is where the queries of one cell arrive. But for failed it belongs to its
// loop.
type socket struct {
	failed chan error // has room for one

	fd    int
	w     *answerer
	batch *batch // the loop's
	// most is how many queries the next batch takes: few, so that a client that
	// waits for these answers goes on while the next are made, until so many
	// wait that nobody is idle.
	most int
	// together says that the kernel cuts several replies out of one, at the client's
	// socket. A client with a network stack of its own, which reads packets off the
	// interface (gVisor), would get them uncut: such a backend must clear this.
	together bool
}

// newSocket takes over pc, which it closes.
func newSocket(pc *net.UDPConn, w *answerer, b *batch) (*socket, error) {
	fd, err := evloop.Take(pc)
	if err != nil {
		return nil, fmt.Errorf("dnsgate: take over the socket: %w", err)
	}
	s := &socket{failed: make(chan error, 1), fd: fd, w: w, batch: b, most: minBatch}
	_, err = unix.GetsockoptInt(s.fd, unix.SOL_UDP, unix.UDP_SEGMENT)
	// Replies are not cut on their way, so that the kernel need not number them.
	_ = unix.SetsockoptInt(s.fd, unix.SOL_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_PROBE)
	s.together = err == nil // kernels before 4.18 cannot, and would send one long reply
	return s, nil
}

// fail says that the socket cannot be served. Only the first error counts.
func (s *socket) fail(err error) {
	select {
	case s.failed <- err:
	default:
	}
}

// Panicked is called by the loop.
func (s *socket) Panicked(err error) {
	s.w.c.Panicked(err)
	s.fail(errors.New("dnsgate: a fault of the gate"))
}

// Ready answers one batch of the queries that have arrived, and reports whether more
// may wait. Its records are delivered together, and before its replies are sent.
func (s *socket) Ready(uint32) (more bool) {
	n, err := s.batch.receive(s.fd, s.most)
	if err != nil {
		if !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EINTR) {
			s.fail(fmt.Errorf("dnsgate: read from UDP: %w", err))
		}
		return errors.Is(err, unix.EINTR)
	}
	more = n == s.most
	if more {
		s.most = min(2*s.most, maxBatch)
	} else {
		s.most = minBatch
	}
	if replies := s.answer(n); s.w.deliver() {
		s.together = s.batch.send(s.fd, replies, s.together)
	}
	return more
}

// answer answers the first n messages and returns how many replies there are.
func (s *socket) answer(n int) (replies int) {
	w, b := s.w, s.batch
	w.now = time.Now() // for all of them, which takes microseconds
	// Where all are within the rate, the limiter is asked once.
	within := w.c.own(b, n) && w.c.limiter.AllowN(w.now, n)
	for i := range n {
		client := b.client(i)
		if !within && !w.c.admit(client, w.now) || within && !w.c.inBudget(client) {
			continue
		}
		w.buf = b.out[replies][:]
		if reply := w.respond(b.message(i), client); reply != nil {
			b.replies[replies] = udpReply{to: i, bytes: reply[2:]}
			replies++
		}
	}
	return replies
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
	return c.inBudget(client)
}

func (c *cell) inBudget(client netip.AddrPort) bool {
	if !c.Meter.Query() {
		c.spent.Add(client)
		return false
	}
	return true
}

// own reports whether the first n messages are all from within the cell.
func (c *cell) own(b *batch, n int) bool {
	for i := range n {
		if !c.Prefix.Contains(b.client(i).Addr()) {
			return false
		}
	}
	return true
}

func unmap(a netip.AddrPort) netip.AddrPort {
	return netip.AddrPortFrom(a.Addr().Unmap(), a.Port())
}
