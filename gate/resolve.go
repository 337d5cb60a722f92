package gate

import (
	"time"

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
