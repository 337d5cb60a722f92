package sniproxy

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"sallyport/firewall"
)

// A countedLookup answers every name with the same address; each answer takes a
// second.
type countedLookup struct {
	ttl time.Duration

	mu    sync.Mutex // guards those below
	asked map[string]int
	fail  error
}

func (c *countedLookup) Lookup(ctx context.Context, name firewall.Name) (Answer, error) {
	c.mu.Lock()
	if c.asked == nil {
		c.asked = map[string]int{}
	}
	c.asked[name.String()]++
	fail := c.fail
	c.mu.Unlock()
	select {
	case <-time.After(time.Second):
	case <-ctx.Done():
		return Answer{}, ctx.Err()
	}
	return Answer{[]netip.Addr{netip.MustParseAddr("192.0.2.1")}, c.ttl}, fail
}

func (c *countedLookup) count(name string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.asked[name]
}

func newCache(t *testing.T, from Lookuper, size int) *Cache {
	t.Helper()
	c, err := NewCache(from, size, 5*time.Second, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// An answer is asked for again once its TTL is over, and neither before the
// floor nor after the cap.
func TestCacheTTL(t *testing.T) {
	for _, tt := range []struct{ ttl, kept time.Duration }{
		{0, 5 * time.Second}, {4 * time.Second, 5 * time.Second}, {30 * time.Second, 30 * time.Second},
		{time.Hour, time.Minute},
	} {
		synctest.Test(t, func(t *testing.T) {
			from := &countedLookup{ttl: tt.ttl}
			c := newCache(t, from, 8)
			look := func(want int) {
				t.Helper()
				addrs, err := c.Resolve(t.Context(), parseName(t, "a.example"))
				if err != nil || len(addrs) != 1 {
					t.Fatalf("%v, %v", addrs, err)
				}
				if n := from.count("a.example"); n != want {
					t.Errorf("TTL %v: asked %d times, want %d", tt.ttl, n, want)
				}
			}
			look(1)
			time.Sleep(tt.kept - time.Millisecond)
			look(1)
			time.Sleep(time.Millisecond)
			look(2)
		})
	}
}

// Many at once are one question; failures are not kept; the cache is bounded.
func TestCache(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		from := &countedLookup{ttl: time.Minute}
		c := newCache(t, from, 2)
		var wg sync.WaitGroup
		for range 50 {
			wg.Go(func() {
				if _, err := c.Resolve(t.Context(), parseName(t, "a.example")); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if n := from.count("a.example"); n != 1 {
			t.Errorf("asked %d times for 50", n)
		}

		from.fail = errors.New("no such name")
		for range 2 {
			if _, err := c.Resolve(t.Context(), parseName(t, "b.example")); err == nil {
				t.Error("a failure resolved")
			}
		}
		if n := from.count("b.example"); n != 2 {
			t.Errorf("a failure was asked for %d times, want 2", n)
		}

		from.fail = nil
		for i := range 10 {
			_, _ = c.Resolve(t.Context(), parseName(t, fmt.Sprintf("n%d.example", i)))
		}
		if n := c.entries.Len(); n != 2 {
			t.Errorf("%d entries, want 2", n)
		}
		_, _ = c.Resolve(t.Context(), parseName(t, "a.example"))
		if n := from.count("a.example"); n != 2 {
			t.Errorf("a name that had to go was asked for %d times, want 2", n)
		}
	})
}

// One who gives up does not fail the others who wait for the same answer.
func TestCacheCallerGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCache(t, &countedLookup{ttl: time.Minute}, 8)
		name := parseName(t, "a.example")
		short, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		var wg sync.WaitGroup
		wg.Go(func() {
			if _, err := c.Resolve(short, name); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("the one who gave up: %v", err)
			}
		})
		synctest.Wait()
		wg.Go(func() {
			if addrs, err := c.Resolve(t.Context(), name); err != nil || len(addrs) != 1 {
				t.Errorf("the one who waits: %v, %v", addrs, err)
			}
		})
		wg.Wait()
	})
}

func TestNewCacheRefuses(t *testing.T) {
	from := new(countedLookup)
	for i, make := range []func() (*Cache, error){
		func() (*Cache, error) { return NewCache(nil, 1, 0, 0) },
		func() (*Cache, error) { return NewCache(from, 0, 0, 0) },
		func() (*Cache, error) { return NewCache(from, 1, 2, 1) },
		func() (*Cache, error) { return NewCache(from, 1, -1, 1) },
	} {
		if _, err := make(); err == nil {
			t.Errorf("cache %d was made", i)
		}
	}
}

// What the cache holds is judged at each use: an address that one policy admits
// is no verdict for the next connection.
//
// probe: R4
// oracle: the addresses that were dialled, and the records
func TestCachedAnswerIsJudged(t *testing.T) {
	s := startDNS(t, "inner.example. 300 IN A 10.0.0.7\nfine.example. 300 IN A 1.1.1.1\n")
	cache := newCache(t, &DNSResolver{Servers: []DNSServer{UDPServer(s.addr)}}, 8)
	for i := range 2 {
		c := newCell(t, "open", func(s *Server) { s.Resolver = cache })
		send(t, dialTCP(t, c.tls), record(message(sni("inner.example"))))
		if r := c.last(1); r.Reason != firewall.ReasonAddress || len(c.dials()) != 0 {
			t.Errorf("use %d: %+v, dialled %v", i, r, c.dials())
		}
		send(t, dialTCP(t, c.tls), record(message(sni("fine.example"))))
		if r := c.last(2); r.Reason != firewall.ReasonDial || r.Upstream.Addr().String() != "1.1.1.1" {
			t.Errorf("control %d: %+v", i, r)
		}
	}
	if got := s.questions(); len(got) != 4 {
		t.Errorf("asked %q, want each name once for A and AAAA", got)
	}
}
