package metrics_test

import (
	"testing"

	"sallyport/firewall"
	"sallyport/firewall/account"
	"sallyport/gate/metrics"
)

// Counting is on the way of every query.
func BenchmarkDecided(b *testing.B) {
	m := metrics.New()
	r := account.Record{Kind: account.KindDNS, Verdict: firewall.Allow, Reason: firewall.ReasonListed, Policy: "strict"}
	b.ReportAllocs()
	for b.Loop() {
		m.Decided([]account.Record{r})
	}
}
