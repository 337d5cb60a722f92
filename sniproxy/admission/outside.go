package admission

import (
	"fmt"
	"net/netip"

	"sallyport/firewall/account"
	"sallyport/internal/contain"
	"sallyport/sniproxy/refusal"
)

// recordOutside records that a connection was not let in. A client can try that at any
// rate it likes, so the records are tallied: one a second at most for each cause.
func (v *Service) recordOutside(r *refusal.Refusal, client netip.AddrPort) {
	v.mu.Lock()
	t := v.outside[r.Detail]
	if t == nil {
		t = account.NewTally(account.Record{Kind: v.Kind, Port: v.Port, Reason: r.Reason}, func(n int64) string {
			if n == 1 {
				return r.Detail
			}
			return fmt.Sprintf("%s: %d connections", r.Detail, n)
		}, func(rec account.Record) {
			defer contain.To(&Delivery{Service: v}) // it may be on a goroutine of the tally's
			v.Record(rec)
			v.flush()
		})
		if v.outside == nil {
			v.outside = make(map[string]*account.Tally)
		}
		v.outside[r.Detail] = t
	}
	v.mu.Unlock()
	t.Add(client)
}

// endTallies records what the tallies still hold. No connection is let in any more.
func (v *Service) endTallies() {
	v.mu.Lock()
	outside := v.outside
	v.mu.Unlock()
	for _, t := range outside {
		t.End()
	}
}
