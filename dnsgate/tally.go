package dnsgate

import "sallyport/firewall"

// newTally makes a tally of what a client can cause at any rate it likes.
func (c *cell) newTally(reason firewall.Reason, what string) *firewall.Tally {
	return firewall.NewTally(firewall.Record{Kind: firewall.KindDNS, Reason: reason}, firewall.Details(what), func(r firewall.Record) {
		c.deliver([]firewall.Record{r})
	})
}

// endTallies records what the tallies still hold.
func (c *cell) endTallies() {
	for _, t := range []*firewall.Tally{c.foreign, c.flood, c.spent, c.conns, c.slow, c.pipelined} {
		t.End()
	}
}
