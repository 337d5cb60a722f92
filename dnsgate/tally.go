package dnsgate

import (
	"fmt"
	"net/netip"
	"sync"
	"time"

	"sallyport/firewall"
)

// tallyEvery is the least time between two records of one tally.
const tallyEvery = time.Second

// A tally counts events of one sort that a client can cause at any rate it
// likes, and makes a record of them at most once in tallyEvery: the first at
// once, those that follow with the next one that is due, the rest at the end.
type tally struct {
	reason firewall.Reason
	what   string
	record func(firewall.Record) // delivers, too

	mu      sync.Mutex // guards the following
	last    time.Time  // of the last record
	pending int        // events since then
	client  netip.AddrPort
}

func (c *cell) newTally(reason firewall.Reason, what string) *tally {
	record := func(r firewall.Record) {
		c.Record(r)
		c.delivered()
	}
	return &tally{reason: reason, what: what, record: record}
}

// flush records what the tallies still hold.
func (c *cell) flush() {
	for _, t := range []*tally{c.foreign, c.flood, c.spent, c.conns, c.slow, c.pipelined} {
		t.flush()
	}
}

// add counts one event that client caused.
func (t *tally) add(client netip.AddrPort) {
	now := time.Now()
	t.mu.Lock()
	t.pending++
	t.client = client
	due := now.Sub(t.last) >= tallyEvery
	if due {
		t.last = now
	}
	t.mu.Unlock()
	if due {
		t.flush()
	}
}

func (t *tally) flush() {
	t.mu.Lock()
	n, client := t.pending, t.client
	t.pending = 0
	t.mu.Unlock()
	if n == 0 {
		return
	}
	t.record(firewall.Record{
		Time: time.Now(), Kind: firewall.KindDNS, Verdict: firewall.Deny, Reason: t.reason,
		Detail: fmt.Sprintf("%d %s", n, t.what), Client: client,
	})
}
