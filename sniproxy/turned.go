package sniproxy

import (
	"fmt"
	"net/netip"

	"sallyport/firewall/account"
	"sallyport/internal/contain"
)

// turnAway records that a connection was not let in. A client can try that at any
// rate it likes, so the records are tallied: one a second at most for each cause.
func (v *service) turnAway(r *refusal, client netip.AddrPort) {
	v.mu.Lock()
	t := v.turned[r.detail]
	if t == nil {
		t = account.NewTally(account.Record{Kind: v.kind, Port: v.port, Reason: r.reason}, func(n int64) string {
			if n == 1 {
				return r.detail
			}
			return fmt.Sprintf("%s: %d connections", r.detail, n)
		}, func(rec account.Record) {
			defer contain.To(&delivery{v: v}) // it may be on a goroutine of the tally's
			v.Record(rec)
			v.flush()
		})
		if v.turned == nil {
			v.turned = make(map[string]*account.Tally)
		}
		v.turned[r.detail] = t
	}
	v.mu.Unlock()
	t.Add(client)
}

// endTallies records what the tallies still hold. No connection is let in any more.
func (v *service) endTallies() {
	v.mu.Lock()
	turned := v.turned
	v.mu.Unlock()
	for _, t := range turned {
		t.End()
	}
}
