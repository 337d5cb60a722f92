// Package admission lets the connections of one cell in, within its bounds, and sees them
// out: it accepts them, counts what they hold and what they may use, cuts what a changed
// policy no longer allows, lets a client read its last words, and has a record delivered
// of each. What is done with a connection meanwhile is a Handler's: the tunnel, or the
// HTTP forwarder.
package admission

import (
	"fmt"
	"log/slog"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"sallyport/firewall"
	"sallyport/firewall/account"
	"sallyport/sniproxy/refusal"
)

// The defaults of a Cell.
const (
	DefaultHelloTimeout = 10 * time.Second
	DefaultMaxConns     = 512
)

// A Cell is what the connections of one cell share. Its fields must not change once it
// is served.
type Cell struct {
	// Policy judges names; nil denies everything.
	Policy *firewall.Policy
	// Current, if not nil, gives the policy for each decision in place of Policy;
	// PolicyChanged must be called after it began to give another one, but not for
	// one that firewall.Policy.Closed has made or unmade: that refuses what is new,
	// and cuts nothing.
	Current func() *firewall.Policy
	// Meter counts what the run uses of the policy's budget; if nil, one of its own.
	// Cells of one run share one, those of different runs never do.
	Meter *account.Meter
	// Prefix is the cell's subnet: clients outside it are refused, and the zero
	// Prefix holds nobody.
	Prefix netip.Prefix
	// MaxConns bounds the connections that are open at once over both services;
	// further ones are closed. 0 means 512.
	MaxConns int
	// Parked is the account of what stands in connections, for all cells of a gate;
	// if nil, one of its own of DefaultParked bytes.
	Parked *Parked
	// HelloTimeout is how long a client may take from its connection to the end
	// of its ClientHello, or over one HTTP request head; 0 means 10 s.
	HelloTimeout time.Duration
	// Record gets one decision for each TLS connection and HTTP request, without
	// the fields Run, Cell and Policy, and without Digest where no policy was asked; connections that are not let in, for
	// their number or for where they come from, are tallied (account.Tally). It is called from many goroutines.
	// The record of a refusal comes before the client learns of it; that of a
	// tunnel or request comes when it ends, and all come before Serve returns.
	// Required.
	Record func(account.Record)
	// Flush, if not nil, is called after Record, once for several calls of it where
	// many connections end at the same time; records are delivered when it returns.
	Flush func()
	// Log gets faults of the gate, never decisions; if nil, nothing is logged.
	Log *slog.Logger

	metered sync.Once // fills in Meter
	parks   sync.Once // fills in Parked

	open        atomic.Int64 // connections now
	heads       atomic.Int64 // bytes that hellos and heads hold now; see Reserve
	parkedBytes atomic.Int64 // of the account of parked bytes

	flows flows
}

// PolicyNow is the policy of this moment.
func (c *Cell) PolicyNow() *firewall.Policy {
	if c.Current != nil {
		return c.Current()
	}
	return c.Policy
}

// Metered is the meter on which the cell counts.
func (c *Cell) Metered() *account.Meter {
	c.metered.Do(func() {
		if c.Meter == nil {
			c.Meter = account.NewMeter(c.PolicyNow().Budget())
		}
	})
	return c.Meter
}

// Open returns how many connections of clients are open, over both services.
func (c *Cell) Open() int64 { return c.open.Load() }

// HeadBytes returns how many bytes hellos and heads hold beyond each one's first.
func (c *Cell) HeadBytes() int64 { return c.heads.Load() }

// HelloTime is HelloTimeout, or its default.
func (c *Cell) HelloTime() time.Duration {
	if c.HelloTimeout > 0 {
		return c.HelloTimeout
	}
	return DefaultHelloTimeout
}

// enter counts a connection in, unless there is no room or no budget for it. The
// caller calls leave when it ends.
func (c *Cell) enter() *refusal.Refusal {
	limit := int64(c.MaxConns)
	if limit <= 0 {
		limit = DefaultMaxConns
	}
	if c.open.Add(1) > limit {
		c.open.Add(-1)
		return &refusal.Refusal{Reason: firewall.ReasonLimit, Detail: fmt.Sprintf("more than %d connections at once", limit)}
	}
	if over := c.Metered().Open(); over != "" {
		c.open.Add(-1)
		return refusal.OverBudget(over)
	}
	return nil
}

func (c *Cell) leave() {
	c.Metered().Close()
	c.open.Add(-1)
}

// Spent is the refusal of a connection that its meter has cut, or nil.
func Spent(m *account.ConnMeter) *refusal.Refusal {
	if over := m.Over(); over != "" {
		return refusal.OverBudget(over)
	}
	return nil
}
