package dnsgate

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"sallyport/firewall"
	"sallyport/firewall/account"
	"sallyport/firewall/allowlist"
	"sallyport/firewall/budget"
)

// Queries over the run's budget are dropped and counted under the budget's own
// reason, on UDP and TCP; another run's are answered.
//
// probe: D20
// oracle: the counts of answered and dropped queries in the records; another run is
// answered
func TestBudgetQueries(t *testing.T) {
	const perSecond, sent = 5, 300
	all, err := allowlist.Parse(strings.NewReader(
		"version: 1\npolicies: {p: {allow: [allowed.example], budgets: {queriesPerSecond: 5}}}"), "allowlist.yaml")
	if err != nil {
		t.Fatal(err)
	}
	p, _ := all.Policy("p")
	for name, s := range map[string]Server{
		"of the policy":  {Policy: p},
		"of the current": {Current: func() *firewall.Policy { return p }},
		"of a meter":     {Policy: policy(t, "strict"), Meter: account.NewMeter(budget.Budget{QueriesPerSecond: perSecond})},
	} {
		t.Run(name, func(t *testing.T) {
			g, other := serve(t, s), serve(t, Server{Policy: p})
			msg := pack(t, question("allowed.example.", dns.TypeA))
			c, start := g.dial(t, "udp4"), time.Now()
			for range sent {
				if _, err := c.Write(msg); err != nil {
					t.Fatal(err)
				}
			}
			g.waitFor(t, "the budget", func(r account.Record) bool { return r.Reason == firewall.ReasonBudget })
			other.alive(t)
			for i := 0; ; i++ { // each connection is closed at its first query over the budget
				if _, err := exchange(g.dial(t, "tcp4"), msg); err != nil {
					break
				}
				if i > 1000 {
					t.Fatal("TCP has no budget")
				}
			}
			most := perSecond * (2 + int(time.Since(start)/time.Second))
			if err := g.stop(); err != nil {
				t.Fatal(err)
			}
			answered, dropped := 0, 0
			for _, r := range g.take() {
				switch {
				case r.Reason == firewall.ReasonListed:
					answered++
				case r.Reason == firewall.ReasonBudget && r.Verdict == firewall.Deny && strings.HasSuffix(r.Detail, " dropped, over budget: queriesPerSecond"):
					n := 0
					_, _ = fmt.Sscan(r.Detail, &n)
					dropped += n
				default:
					t.Errorf("record %+v", r)
				}
			}
			if answered < perSecond || answered > most || dropped == 0 {
				t.Errorf("%d answered and %d dropped, want %d to %d answered", answered, dropped, perSecond, most)
			}
		})
	}
}
