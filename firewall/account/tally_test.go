package account

import (
	"net/netip"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"sallyport/firewall"
)

// TestTally counts a flood: few records, whose counts come to all of it.
func TestTally(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got []Record
		tally := NewTally(Record{Kind: KindTLS, Port: 443, Reason: firewall.ReasonLimit}, Numbered("too many"), func(r Record) { got = append(got, r) })
		client := netip.MustParseAddrPort("10.0.0.3:1")
		const rounds, each = 50, 100
		for range rounds { // in five seconds
			for range each {
				tally.Add(client)
			}
			time.Sleep(100 * time.Millisecond)
			synctest.Wait()
		}
		tally.End()
		time.Sleep(time.Minute)
		ledger, sum := NewLedger("p", ""), int64(0)
		for _, r := range got {
			ledger.Add(r)
			sum += max(r.Count, 1)
			if r.Verdict != firewall.Deny || r.Kind != KindTLS || r.Reason != firewall.ReasonLimit || r.Client != client || r.Time.IsZero() {
				t.Errorf("%+v", r)
			}
		}
		if len(got) != 6 || got[0].Count != 0 || got[0].Detail != "1 too many" || got[1].Detail != "999 too many" || sum != rounds*each {
			t.Errorf("%d records of %d events: %+v", len(got), sum, got)
		}
		if hosts := ledger.Receipt().Hosts; len(hosts) != 1 || hosts[0].Count != rounds*each {
			t.Errorf("the receipt has %+v", hosts)
		}
	})
}

// TestTallyIsPrompt requires that what a flood has left is on record a second later, though
// nothing more comes.
func TestTallyIsPrompt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got []Record
		tally := NewTally(Record{}, Numbered("events"), func(r Record) { got = append(got, r) })
		for range 3 {
			tally.Add(netip.AddrPort{})
		}
		time.Sleep(tallyEvery + time.Millisecond)
		synctest.Wait()
		if len(got) != 2 || got[1].Count != 2 {
			t.Errorf("%+v", got)
		}
		tally.End()
		if len(got) != 2 {
			t.Errorf("in the end %+v", got)
		}
	})
}

// TestTallyAtOnce adds from many goroutines.
func TestTallyAtOnce(t *testing.T) {
	var mu sync.Mutex
	var sum int64
	tally := NewTally(Record{}, Numbered("events"), func(r Record) {
		mu.Lock()
		defer mu.Unlock()
		sum += max(r.Count, 1)
	})
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 1000 {
				tally.Add(netip.AddrPort{})
			}
		})
	}
	wg.Wait()
	tally.End()
	if sum != 8000 {
		t.Errorf("%d events on record, want 8000", sum)
	}
}
