package account

import (
	"hash/maphash"
	"sync"
	"sync/atomic"

	"golang.org/x/time/rate"

	"sallyport/firewall"
	"sallyport/firewall/budget"
)

// maxMetered bounds the names, and the hosts, that one Meter remembers. It knows
// them by their hashes, so that each takes some dozen bytes however long it is. Two
// that have the same one, which nobody can aim at, share an account.
const maxMetered = 1 << 16

var nameSeed = maphash.MakeSeed()

// A Meter is the account of one run: what it has used of its Budget. It is safe
// for concurrent use. No two leases share one, so that no run spends what is
// another's. Where a method returns a string, it is "" within the budget, else
// the detail of a refusal with ReasonBudget.
type Meter struct {
	limits   atomic.Pointer[limits]
	up, down atomic.Int64 // bytes so far
	open     atomic.Int64 // connections now

	mu    sync.Mutex // guards what follows
	hosts map[uint64]*hostBytes
	below map[string]*namesBelow // by the name of an entry, "" for any
	names int                    // in all of below
}

// limits are a budget with what holds its rates, nil where there is none.
type limits struct {
	budget.Budget
	connections, queries *rate.Limiter
}

// hostBytes are what one host was sent and has sent.
type hostBytes struct{ up, down atomic.Int64 }

// namesBelow are the names that were reached below one entry.
type namesBelow struct {
	seen  map[uint64]struct{}
	bytes int64
}

// NewMeter returns the account of a run that has used nothing yet.
func NewMeter(b budget.Budget) *Meter {
	m := &Meter{hosts: make(map[uint64]*hostBytes), below: make(map[string]*namesBelow)}
	m.limits.Store(&limits{b, limiter(b.ConnectionsPerSecond), limiter(b.QueriesPerSecond)})
	return m
}

// SetBudget gives the run another budget, on which what it has used already
// counts, also of what had no budget before. Connections that are open then are
// held to it from their next byte on.
func (m *Meter) SetBudget(b budget.Budget) {
	next, last := &limits{Budget: b}, m.limits.Load()
	if next.connections = last.connections; b.ConnectionsPerSecond != last.ConnectionsPerSecond {
		next.connections = limiter(b.ConnectionsPerSecond)
	}
	if next.queries = last.queries; b.QueriesPerSecond != last.QueriesPerSecond {
		next.queries = limiter(b.QueriesPerSecond)
	}
	m.limits.Store(next)
}

func limiter(perSecond int64) *rate.Limiter {
	if perSecond == 0 {
		return nil
	}
	return rate.NewLimiter(rate.Limit(perSecond), int(perSecond))
}

// Query counts a DNS query and reports whether it may be answered.
func (m *Meter) Query() bool {
	l := m.limits.Load().queries
	return l == nil || l.Allow()
}

// Open counts a new connection; if it is within the budget, the caller calls
// Close once when it ends.
func (m *Meter) Open() (over string) {
	b := m.limits.Load()
	if n := m.open.Add(1); b.Connections != 0 && n > b.Connections {
		m.open.Add(-1)
		return b.Exceeded(budget.Connections)
	}
	if b.connections != nil && !b.connections.Allow() {
		m.open.Add(-1)
		return b.Exceeded(budget.ConnectionsPerSecond)
	}
	return ""
}

// Further counts one more connection to the outside that an open one needs, such as
// the next request of a client to another host.
func (m *Meter) Further() (over string) {
	b := m.limits.Load()
	if b.connections != nil && !b.connections.Allow() {
		return b.Exceeded(budget.ConnectionsPerSecond)
	}
	return ""
}

// Close ends what Open began.
func (m *Meter) Close() { m.open.Add(-1) }

// Reach counts n among the names that d, the decision that allows it, lets the
// run reach, and opens the account of one connection to it. It comes before n is
// looked up, since a look-up shows the name to the outside already.
func (m *Meter) Reach(n firewall.Name, d firewall.Decision) (c *ConnMeter, over string) {
	b := &m.limits.Load().Budget
	switch {
	case b.Upload != 0 && m.up.Load() >= b.Upload:
		return nil, b.Exceeded(budget.Upload)
	case b.Download != 0 && m.down.Load() >= b.Download:
		return nil, b.Exceeded(budget.Download)
	}
	hash := maphash.String(nameSeed, n.String())
	m.mu.Lock()
	defer m.mu.Unlock()
	if over = m.addName(b, n, hash, d); over != "" {
		return nil, over
	}
	h, over := m.host(b, hash)
	if over != "" {
		return nil, over
	}
	return &ConnMeter{m: m, host: h}, ""
}

// addName counts a name below the entry that decided, also where no budget is about
// names: the next one may be. m.mu is held.
func (m *Meter) addName(b *budget.Budget, n firewall.Name, hash uint64, d firewall.Decision) (over string) {
	entry, below := d.Below(n)
	if !below {
		return "" // only the name's own labels could carry anything
	}
	set := m.below[entry]
	if set == nil {
		set = &namesBelow{seen: make(map[uint64]struct{})}
		m.below[entry] = set
	}
	if _, known := set.seen[hash]; known {
		return ""
	}
	own := int64(len(n.String()))
	if entry != "" {
		own -= int64(len(".") + len(entry))
	}
	switch full := m.names >= maxMetered; {
	case b.WildcardNames != 0 && int64(len(set.seen)) >= b.WildcardNames:
		return b.Exceeded(budget.WildcardNames)
	case b.WildcardBytes != 0 && set.bytes+own > b.WildcardBytes:
		return b.Exceeded(budget.WildcardBytes)
	case full && b.WildcardNames|b.WildcardBytes == 0:
		return "" // a budget on names would find the count full
	case full:
		return "over budget: more names than the gate counts"
	}
	set.seen[hash] = struct{}{}
	set.bytes += own
	m.names++
	return ""
}

// host finds the account of a host, which it has also where no budget is about
// hosts; nil if there is no room for one, and no budget now that needs it. m.mu is
// held.
func (m *Meter) host(b *budget.Budget, hash uint64) (h *hostBytes, over string) {
	h = m.hosts[hash]
	switch {
	case h == nil && len(m.hosts) < maxMetered:
		h = new(hostBytes)
		m.hosts[hash] = h
	case h == nil && b.HostUpload|b.HostDownload != 0:
		return nil, overHosts
	case h == nil:
	case b.HostUpload != 0 && h.up.Load() >= b.HostUpload:
		return nil, b.Exceeded(budget.HostUpload)
	case b.HostDownload != 0 && h.down.Load() >= b.HostDownload:
		return nil, b.Exceeded(budget.HostDownload)
	}
	return h, ""
}

// overHosts is the detail of a refusal of a host without an account.
const overHosts = "over budget: more hosts than the gate counts"

// A ConnMeter is the account of one connection to a host.
type ConnMeter struct {
	m    *Meter
	host *hostBytes   // nil if there was no room for one
	cut  atomic.Int32 // the budget that Count found spent first, plus one; or cutHost
}

// cutHost says that a budget needs the account of a host that has none.
const cutHost = -1

// Count counts n bytes, up from the sandbox or down to it. It reports whether they
// are within the budget; what is not must be cut.
func (c *ConnMeter) Count(up bool, n int) (ok bool) {
	b, sum, kind := &c.m.limits.Load().Budget, &c.m.down, budget.Download
	if up {
		sum, kind = &c.m.up, budget.Upload
	}
	ok = c.add(b, sum, n, kind)
	if c.host == nil {
		if b.HostUpload|b.HostDownload != 0 {
			c.cut.CompareAndSwap(0, cutHost)
			return false
		}
		return ok
	}
	sum, kind = &c.host.down, budget.HostDownload
	if up {
		sum, kind = &c.host.up, budget.HostUpload
	}
	return c.add(b, sum, n, kind) && ok
}

// add counts n bytes in one sum.
func (c *ConnMeter) add(b *budget.Budget, sum *atomic.Int64, n int, k budget.Kind) (ok bool) {
	if max := b.Get(k); sum.Add(int64(n)) <= max || max == 0 {
		return true
	}
	c.cut.CompareAndSwap(0, int32(k)+1)
	return false
}

// Over says which budget the connection has overdrawn.
func (c *ConnMeter) Over() (over string) {
	key := c.cut.Load()
	switch key {
	case 0:
		return ""
	case cutHost:
		return overHosts
	}
	return c.m.limits.Load().Exceeded(budget.Kind(key) - 1)
}
