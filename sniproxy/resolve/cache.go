package resolve

import (
	"context"
	"errors"
	"net/netip"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"golang.org/x/sync/singleflight"

	"sallyport/firewall"
	"sallyport/internal/contain"
)

// A Lookuper finds the addresses of a fully qualified name and how long they may
// be used; an answer that must not be followed is a *RefusedError.
type Lookuper interface {
	Lookup(ctx context.Context, name firewall.Name) (Answer, error)
}

// A Cache keeps answers for as long as their TTL says, within bounds, and asks
// once for those who want the same name at the same time. It holds what a name
// resolved to and no verdict: each use is judged anew. One belongs to one cell:
// over a shared one a sandbox could measure what another has looked up. Failures
// and refused answers are not kept.
type Cache struct {
	from     Lookuper
	min, max time.Duration
	entries  *lru.Cache[string, cached]
	flight   singleflight.Group
	// Observe, if not nil, is told of each look-up whether the cache had it.
	Observe func(hit bool)
}

type cached struct {
	addrs []netip.Addr
	until time.Time
}

// NewCache makes a cache of at most size names before from. An answer is kept
// for its TTL, but no shorter than least, which also holds for a TTL of 0, and no
// longer than most: a name that changes its address between two look-ups (DNS
// rebinding) is held to its first, and one that moves is found again.
func NewCache(from Lookuper, size int, least, most time.Duration) (*Cache, error) {
	if from == nil || least < 0 || most < least {
		return nil, errors.New("a cache needs a resolver and bounds, the least no longer than the most")
	}
	entries, err := lru.New[string, cached](size)
	if err != nil {
		return nil, err
	}
	return &Cache{from: from, min: least, max: most, entries: entries}, nil
}

// Remembered returns every address of name if there is an answer that is kept.
// The slice is shared: it must not be changed.
func (c *Cache) Remembered(name firewall.Name) (addrs []netip.Addr, ok bool, err error) {
	e, ok := c.entries.Get(name.String())
	if !ok || !time.Now().Before(e.until) {
		return nil, false, nil // Resolve will say so to Observe
	}
	if c.Observe != nil {
		c.Observe(true)
	}
	return e.addrs, true, nil
}

// Resolve returns every address of name. The slice is shared: it must not be
// changed.
func (c *Cache) Resolve(ctx context.Context, name firewall.Name) ([]netip.Addr, error) {
	key := name.String()
	e, ok := c.entries.Get(key)
	hit := ok && time.Now().Before(e.until)
	if c.Observe != nil {
		c.Observe(hit)
	}
	if hit {
		return e.addrs, nil
	}
	v, err, shared := c.flight.Do(key, func() (any, error) { return c.fill(ctx, name) })
	if err == nil {
		return v.([]netip.Addr), nil
	}
	gaveUp := errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
	if shared && gaveUp && ctx.Err() == nil { // it may have been another caller who gave up
		return c.fill(ctx, name)
	}
	return nil, err
}

// fill looks a name up and keeps the answer. A panic would be one of all callers
// that wait for it.
func (c *Cache) fill(ctx context.Context, name firewall.Name) (_ []netip.Addr, err error) {
	defer contain.Error(&err)
	a, err := c.from.Lookup(ctx, name)
	if err != nil {
		return nil, err
	}
	if ttl := min(max(a.TTL, c.min), c.max); ttl > 0 {
		c.entries.Add(name.String(), cached{a.Addrs, time.Now().Add(ttl)})
	}
	return a.Addrs, nil
}
