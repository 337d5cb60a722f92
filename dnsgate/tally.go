package dnsgate

import (
	"sallyport/firewall"
	"sallyport/firewall/account"
)

// newTally makes a tally of what a client can cause at any rate it likes.
func (c *cell) newTally(reason firewall.Reason, what string) *account.Tally {
	return account.NewTally(account.Record{Kind: account.KindDNS, Reason: reason}, account.Numbered(what), func(r account.Record) {
		c.deliver([]account.Record{r})
	})
}

// endTallies records what the tallies still hold.
func (c *cell) endTallies() {
	for _, t := range []*account.Tally{c.foreign, c.flood, c.spent, c.conns, c.slow, c.pipelined} {
		t.End()
	}
}
