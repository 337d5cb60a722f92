package sniproxy

import (
	"cmp"
	"fmt"
	"net"
	"slices"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"sallyport/firewall"
	"sallyport/internal/contain"
)

const (
	// sweepEvery is how often it is looked at what a service's connections hold while
	// bytes move, or stand, in them. In between they can take what the network brings.
	sweepEvery = 100 * time.Millisecond
	// sweepAbove is how many bytes a tunnel must have moved since it was last found
	// empty to be looked at again: silent and chatty ones cost no call.
	sweepAbove = 16 << 10
	// DefaultParked is the limit of an account that nobody made.
	DefaultParked = 128 << 20
	// parkedShares says which part of the limit a cell may use up: one over so many.
	parkedShares = 4
)

// A Parked is the account of what the connections of all cells hold for an end that
// does not read: bytes that were read and not passed on, and what the kernel holds for
// their sockets, which is memory of the gate's as well. One cell holds a part of the
// limit at most; where all together hold more than the limit, nobody holds more than
// an equal part of it. What is above that is cut, the worst first.
//
// It is measured now and then, and not counted byte by byte: a cell can hold more for
// the time between two looks.
type Parked struct {
	limit   int64
	held    atomic.Int64
	holders atomic.Int64 // cells that hold anything
}

// NewParked makes an account with a limit in bytes.
func NewParked(limit int64) *Parked { return &Parked{limit: limit} }

// Held returns how many bytes are held, over all cells.
func (p *Parked) Held() int64 { return p.held.Load() }

// Limit returns how many bytes may be held, over all cells.
func (p *Parked) Limit() int64 { return p.limit }

// parked is the account that the server takes part in.
func (s *Server) parked() *Parked {
	s.parks.Do(func() {
		if s.Parked == nil {
			s.Parked = NewParked(DefaultParked)
		}
	})
	return s.Parked
}

// park changes what a cell holds.
func (s *Server) park(diff int64) {
	if diff == 0 {
		return
	}
	p := s.parked()
	p.held.Add(diff)
	switch now := s.parkedBytes.Add(diff); {
	case now == 0:
		p.holders.Add(-1)
	case now == diff:
		p.holders.Add(1)
	}
}

// may is how many bytes a cell may hold now.
func (s *Server) may() int64 {
	p := s.parked()
	most := p.limit / parkedShares
	if p.held.Load() > p.limit {
		most = min(most, p.limit/max(p.holders.Load(), 1))
	}
	return most
}

// A holding is what one connection of a client holds, with the one to its host.
type holding struct {
	bytes   int64
	stalled bool // nothing has moved since the last look
	cut     func(*refusal)
}

// settle puts what a service holds on the account, and cuts the worst of it: those
// first in which nothing moves, and of these those that hold most.
func (v *service) settle(all []holding) {
	var sum int64
	for i := range all {
		sum += all[i].bytes
	}
	v.park(sum - v.swept)
	v.swept = sum
	may, cell := v.may(), v.parkedBytes.Load()
	over := cell - may
	if over <= 0 {
		return
	}
	slices.SortFunc(all, func(a, b holding) int {
		if a.stalled != b.stalled {
			if a.stalled {
				return -1
			}
			return 1
		}
		return cmp.Compare(b.bytes, a.bytes)
	})
	for i := range all {
		if over <= 0 {
			return
		}
		over -= all[i].bytes
		v.park(-all[i].bytes)
		v.swept -= all[i].bytes
		all[i].cut(&refusal{reason: firewall.ReasonLimit, detail: fmt.Sprintf(
			"cut: %s wait in it for an end that does not read, %s in the cell's connections, which may hold %s",
			mebibytes(all[i].bytes), mebibytes(cell), mebibytes(may))})
	}
}

func mebibytes(n int64) string { return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20)) }

// heldNow is what the kernel holds for a socket: received and not read, queued and
// not confirmed, and set aside for more of it. A kernel that does not say is one
// before 4.12; see setClientBuffers.
func heldNow(fd int) (n int64, err error) {
	const rmem, forward, queued, backlog = 0, 4, 5, 7 // linux/sock_diag.h
	var info [9]uint32
	size := uint32(unsafe.Sizeof(info))
	_, _, errno := unix.RawSyscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.SOL_SOCKET, unix.SO_MEMINFO,
		uintptr(unsafe.Pointer(&info)), uintptr(unsafe.Pointer(&size)), 0)
	if errno != 0 {
		return 0, failed("getsockopt", errno)
	}
	return int64(info[rmem]) + int64(info[forward]) + int64(info[queued]) + int64(info[backlog]), nil
}

// clientBytes is the room that the kernel gives a connection of a client, each way,
// and no more: the way to a cell is short, and what stands in it is the gate's memory.
// The kernel doubles it, for what it needs itself, and gives less where the machine
// says so (net.core.wmem_max, rmem_max).
const clientBytes = 256 << 10

// setClientBuffers bounds what the connections that a listener accepts can hold, and
// finds out whether the kernel says how much they do.
func setClientBuffers(fd int) error {
	if _, err := heldNow(fd); err != nil {
		return fmt.Errorf("asking what a socket holds, as Linux 4.12 and newer say: %w", err)
	}
	for _, name := range [...]int{unix.SO_SNDBUF, unix.SO_RCVBUF} {
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, name, clientBytes); err != nil {
			return failed("setsockopt", err.(unix.Errno))
		}
	}
	return nil
}

// A sweeper looks at the tunnels of a service, on its loop.
type sweeper struct {
	v     *service
	timer timer
	all   []holding
}

// sweepSoon has the tunnels of a service looked at.
func (v *service) sweepSoon() {
	if v.sweeper.timer.index == 0 {
		v.loop.set(&v.sweeper.timer, v.loop.now.Add(sweepEvery))
	}
}

// expired is called by the loop.
func (s *sweeper) expired() {
	defer contain.To(&delivery{v: s.v})
	s.all = s.all[:0]
	for t := s.v.tunnels.first; t != nil; t = t.next {
		if n := t.holds(); n > 0 {
			s.all = append(s.all, holding{bytes: n, stalled: t.stalled, cut: t.overfull})
		}
	}
	again := len(s.all) > 0
	s.v.settle(s.all)
	clear(s.all)
	if again {
		s.v.sweepSoon()
	}
}

// holds is what a tunnel holds, and 0 where that is as good as nothing.
func (t *tunnel) holds() int64 {
	moved := t.client.taken + t.up.taken
	t.stalled, t.movedAt = t.movedAt == moved, moved
	waiting := int64(t.client.waiting() + t.up.waiting())
	quiet := t.stage == stageRelay && !t.client.gone && !t.up.gone && waiting == 0 && moved-t.emptyAt <= sweepAbove
	if quiet || t.stage == stageHello { // whose bytes are on another account
		return 0
	}
	n := waiting
	for _, fd := range [...]int{t.client.fd, t.up.fd} {
		if fd >= 0 {
			held, _ := heldNow(fd) // setClientBuffers has found that it can be asked
			n += held
		}
	}
	if n <= sweepAbove && t.stage == stageRelay {
		t.emptyAt = moved
		return 0
	}
	return n
}

// overfull cuts a tunnel that holds too much, however far it has come.
func (t *tunnel) overfull(r *refusal) {
	defer contain.To(t)
	t.over = r
	switch t.stage {
	case stageRelay:
		t.cut()
	case stageReach:
		t.client.close(true)
		aside := t.reach.cancel != nil
		if t.abandon(); !aside { // else it will say so itself
			t.refuse(r)
		}
	case stageRefuse:
		t.client.close(true)
	case stageLinger:
		t.hangUp()
	}
}

// sweepHTTP looks at the connections of a service until there are none.
func (v *service) sweepHTTP() {
	tick := time.NewTicker(sweepEvery)
	defer tick.Stop()
	for v.sweepConns() {
		<-tick.C
	}
}

// sweepConns is one look; false means that there is nothing left to look at.
func (v *service) sweepConns() bool {
	defer contain.To(&delivery{v: v})
	v.mu.Lock()
	defer v.mu.Unlock()
	held := make(map[*httpConn]int64)
	for c, h := range v.conns {
		held[h] += heldBy(c)
	}
	var all []holding
	for h, n := range held {
		if n > 0 {
			all = append(all, holding{bytes: n, stalled: n == h.held, cut: h.overfull})
		}
		h.held = n
	}
	v.settle(all)
	v.sweeping = len(v.conns) > 0
	return v.sweeping
}

func heldBy(c *net.TCPConn) (n int64) {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0 // it is closed
	}
	_ = raw.Control(func(fd uintptr) { n, _ = heldNow(int(fd)) })
	return n
}

// overfull cuts a connection that holds too much. v.mu is held.
func (h *httpConn) overfull(r *refusal) {
	h.over.Store(r)
	for c, owner := range h.v.conns {
		if owner == h {
			reset(c)
		}
	}
}
