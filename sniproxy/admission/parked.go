package admission

import (
	"cmp"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"sallyport/firewall"
	"sallyport/sniproxy/refusal"
)

const (
	// SweepEvery is how often it is looked at what a service's connections hold while
	// bytes move, or stand, in them. In between they can take what the network brings.
	SweepEvery = 100 * time.Millisecond
	// SweepAbove is how many bytes a tunnel must have moved since it was last found
	// empty to be looked at again: silent and chatty ones cost no call.
	SweepAbove = 16 << 10
	// DefaultParked is the limit of an account that nobody made.
	DefaultParked = 128 << 20
	// ParkedShares says which part of the limit a cell may use up: one over so many.
	ParkedShares = 4
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

// Holders returns how many cells hold anything.
func (p *Parked) Holders() int64 { return p.holders.Load() }

// Limit returns how many bytes may be held, over all cells.
func (p *Parked) Limit() int64 { return p.limit }

// account is the one of parked bytes that the cell takes part in.
func (c *Cell) account() *Parked {
	c.parks.Do(func() {
		if c.Parked == nil {
			c.Parked = NewParked(DefaultParked)
		}
	})
	return c.Parked
}

// hold changes what a cell holds.
func (c *Cell) hold(diff int64) {
	if diff == 0 {
		return
	}
	p := c.account()
	p.held.Add(diff)
	switch now := c.parkedBytes.Add(diff); {
	case now == 0:
		p.holders.Add(-1)
	case now == diff:
		p.holders.Add(1)
	}
}

// allowance is how many bytes a cell may hold now.
func (c *Cell) allowance() int64 {
	p := c.account()
	most := p.limit / ParkedShares
	if p.held.Load() > p.limit {
		most = min(most, p.limit/max(p.holders.Load(), 1))
	}
	return most
}

// A Holding is what one connection of a client holds, with the one to its host.
type Holding struct {
	Bytes   int64
	Stalled bool // nothing has moved since the last look
	Cut     func(*refusal.Refusal)
}

// Settle puts what a service holds on the account, and cuts the worst of it: those
// first in which nothing moves, and of these those that hold most.
func (v *Service) Settle(all []Holding) {
	var sum int64
	for i := range all {
		sum += all[i].Bytes
	}
	v.hold(sum - v.settled)
	v.settled = sum
	may, cell := v.allowance(), v.parkedBytes.Load()
	over := cell - may
	if over <= 0 {
		return
	}
	slices.SortFunc(all, func(a, b Holding) int {
		if a.Stalled != b.Stalled {
			if a.Stalled {
				return -1
			}
			return 1
		}
		return cmp.Compare(b.Bytes, a.Bytes)
	})
	for i := range all {
		if over <= 0 {
			return
		}
		over -= all[i].Bytes
		v.hold(-all[i].Bytes)
		v.settled -= all[i].Bytes
		all[i].Cut(&refusal.Refusal{Reason: firewall.ReasonLimit, Detail: fmt.Sprintf(
			"cut: %s wait in it for an end that does not read, %s in the cell's connections, which may hold %s",
			mebibytes(all[i].Bytes), mebibytes(cell), mebibytes(may))})
	}
}

func mebibytes(n int64) string { return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20)) }
