package sniproxy

import (
	"cmp"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"sallyport/firewall"
	"sallyport/internal/contain"
	"sallyport/internal/evloop"
	"sallyport/sniproxy/refusal"
	"sallyport/sniproxy/socket"
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
	cut     func(*refusal.Refusal)
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
		all[i].cut(&refusal.Refusal{Reason: firewall.ReasonLimit, Detail: fmt.Sprintf(
			"cut: %s wait in it for an end that does not read, %s in the cell's connections, which may hold %s",
			mebibytes(all[i].bytes), mebibytes(cell), mebibytes(may))})
	}
}

func mebibytes(n int64) string { return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20)) }

// A sweeper looks at the tunnels of a service, on its loop.
type sweeper struct {
	v     *service
	timer evloop.Timer
	all   []holding
}

// sweepSoon has the tunnels of a service looked at.
func (v *service) sweepSoon() {
	if !v.sweeper.timer.IsSet() {
		v.loop.Set(&v.sweeper.timer, v.loop.Now.Add(sweepEvery))
	}
}

// Expired is called by the loop.
func (s *sweeper) Expired() {
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
	for _, fd := range [...]int{t.client.fd, t.up.fd, t.linger.held()} {
		if fd >= 0 {
			held, _ := socket.Held(fd) // ClientOptions has found that it can be asked
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
func (t *tunnel) overfull(r *refusal.Refusal) {
	defer contain.To(t)
	t.over = r
	switch t.stage {
	case stageRelay:
		t.cut()
	case stageDial:
		t.client.close(true)
		if !t.dial.Cancel() {
			t.refuse(r)
		}
	case stageRefuse:
		t.client.close(true)
	case stageLinger:
		t.linger.hangUp()
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
		held[h] += socket.HeldBy(c)
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

// overfull cuts a connection that holds too much. v.mu is held.
func (h *httpConn) overfull(r *refusal.Refusal) {
	h.over.Store(r)
	for c, owner := range h.v.conns {
		if owner == h {
			h.cut(c)
		}
	}
}
