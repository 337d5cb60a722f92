package gate

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"sallyport/firewall"
	"sallyport/sniproxy/reach"
	"sallyport/sniproxy/resolve"
)

// A CacheSize bounds the resolver cache of one cell.
type CacheSize struct {
	Names       int // 0 is no cache
	Least, Most time.Duration
}

// cellResolver is the gate's resolver for one lease. Each has a cache of its
// own, which ends with it: what a look-up costs tells a sandbox nothing about
// what others have looked up.
func (s *server) cellResolver() (reach.Resolver, error) {
	from, ok := s.Resolver.(resolve.Lookuper)
	if !ok || s.Cache.Names == 0 {
		return s.Resolver, nil
	}
	c, err := resolve.NewCache(from, s.Cache.Names, s.Cache.Least, s.Cache.Most)
	if err != nil {
		return nil, err
	}
	c.Observe = s.Metrics.Cached
	return c, nil
}

// outside is the gate's resolver without the cells: the tunnel must not lead
// from one cell into another, also where an allowlist admits a private range
// that holds the cells. It stands before the cache, so that it judges each use.
type outside struct {
	*server
	inner reach.Resolver
}

func (o outside) Resolve(ctx context.Context, name firewall.Name) ([]netip.Addr, error) {
	addrs, err := o.inner.Resolve(ctx, name)
	if err != nil {
		return nil, err
	}
	return addrs, o.judge(addrs)
}

// Remembered is Resolve where the answer is known.
func (o outside) Remembered(name firewall.Name) (addrs []netip.Addr, ok bool, err error) {
	known, ok := o.inner.(reach.Rememberer)
	if !ok {
		return nil, false, nil
	}
	if addrs, ok, err = known.Remembered(name); ok && err == nil {
		err = o.judge(addrs)
	}
	return addrs, ok, err
}

// judge refuses the addresses of cells.
func (o outside) judge(addrs []netip.Addr) error {
	cells := o.cells.Load()
	for _, a := range addrs {
		if cells.has(a.Unmap()) {
			return &resolve.RefusedError{Detail: fmt.Sprintf("%v is an address of a cell", a)}
		}
	}
	return nil
}

// cellRanges are the addresses of cells.
type cellRanges struct {
	leased map[netip.Prefix]bool
	pools  []netip.Prefix // few: the leases of one executor share theirs
}

func (c *cellRanges) has(a netip.Addr) bool {
	for _, pool := range c.pools {
		if pool.Contains(a) {
			return true
		}
	}
	for bits := minPrefixBits; bits <= maxPrefixBits; bits++ {
		if p, err := a.Prefix(bits); err == nil && c.leased[p] {
			return true
		}
	}
	return false
}

// countCells makes the addresses of cells known to tunnels, which must not
// wait for s.mu. It is held.
func (s *server) countCells() {
	cells := &cellRanges{leased: make(map[netip.Prefix]bool, len(s.leases))}
	for _, l := range s.leases {
		cells.leased[l.Prefix] = true
		if l.Pool.IsValid() && !slices.Contains(cells.pools, l.Pool) {
			cells.pools = append(cells.pools, l.Pool)
		}
	}
	s.cells.Store(cells)
}
