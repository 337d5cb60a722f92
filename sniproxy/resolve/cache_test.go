package resolve

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
	"sallyport/sniproxy/testnet"
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
				addrs, err := c.Resolve(t.Context(), testnet.ParseName(t, "a.example"))
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
				if _, err := c.Resolve(t.Context(), testnet.ParseName(t, "a.example")); err != nil {
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
			if _, err := c.Resolve(t.Context(), testnet.ParseName(t, "b.example")); err == nil {
				t.Error("a failure resolved")
			}
		}
		if n := from.count("b.example"); n != 2 {
			t.Errorf("a failure was asked for %d times, want 2", n)
		}

		from.fail = nil
		for i := range 10 {
			_, _ = c.Resolve(t.Context(), testnet.ParseName(t, fmt.Sprintf("n%d.example", i)))
		}
		if n := c.entries.Len(); n != 2 {
			t.Errorf("%d entries, want 2", n)
		}
		_, _ = c.Resolve(t.Context(), testnet.ParseName(t, "a.example"))
		if n := from.count("a.example"); n != 2 {
			t.Errorf("a name that had to go was asked for %d times, want 2", n)
		}
	})
}

// One who gives up does not fail the others who wait for the same answer.
func TestCacheCallerGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCache(t, &countedLookup{ttl: time.Minute}, 8)
		name := testnet.ParseName(t, "a.example")
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

// What is remembered is so for its time alone, and each look is counted once.
func TestCacheRemembered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		from, hits, misses := &countedLookup{ttl: time.Minute}, 0, 0
		c, err := NewCache(from, 10, 0, time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		c.Observe = func(hit bool) {
			if hit {
				hits++
			} else {
				misses++
			}
		}
		name := testnet.ParseName(t, "site.example")
		remembered := func(want bool) {
			t.Helper()
			if addrs, ok, err := c.Remembered(name); ok != want || err != nil || (len(addrs) > 0) != want {
				t.Errorf("remembered: %v, %t, %v, want %t", addrs, ok, err, want)
			}
		}
		remembered(false)
		for range 2 {
			if _, err := c.Resolve(t.Context(), name); err != nil {
				t.Fatal(err)
			}
		}
		remembered(true)
		time.Sleep(time.Minute)
		remembered(false)
		if hits != 2 || misses != 1 {
			t.Errorf("%d hits and %d misses, want 2 and 1", hits, misses)
		}
		zero, err := NewCache(&countedLookup{}, 10, 0, time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := zero.Resolve(t.Context(), name); err != nil || zero.entries.Len() != 0 {
			t.Errorf("an answer without a TTL: %d are kept, %v", zero.entries.Len(), err)
		}
	})
}
