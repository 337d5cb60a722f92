package decisionlog

import (
	"sync"

	"golang.org/x/time/rate"

	"sallyport/firewall"
	"sallyport/firewall/account"
)

// The bounds of a Limit, for each cause: what a program that is refused asks for in
// good faith is below them.
const (
	LineRate  = 20 // lines a second
	LineBurst = 100
)

// A Limit says which decisions of a lease have a line of their own. A sandbox can
// have itself refused tens of thousands of times a second, and the lines of that
// would drive those of all other runs out of a log of bounded size. So of what
// reaches nothing, so many decisions a second of each cause have one, and the
// others share one a second (account.Tally). Receipt and metrics count all; they
// come before it.
type Limit struct {
	// Put gets the shared lines. Required.
	Put func(account.Record)

	mu     sync.Mutex // guards causes
	causes []*cause   // no more of them than the code has reasons
}

// A cause is what tells such decisions apart: never anything that a sandbox chose.
type cause struct {
	kind    account.Kind
	verdict firewall.Verdict
	reason  firewall.Reason
	limiter *rate.Limiter
	tally   *account.Tally
}

// Pass returns the records that have a line, in their order, and tallies the
// others. It moves them within the slice.
func (l *Limit) Pass(records []account.Record) []account.Record {
	kept := 0
	for i := range records {
		r := &records[i]
		if !reachesNothing(r) || r.Count > 1 || l.admit(r) {
			if kept != i {
				records[kept] = *r
			}
			kept++
		}
	}
	return records[:kept]
}

// reachesNothing reports whether a decision is one that a sandbox can cause at any
// rate, since nobody but the gate has a part in it.
func reachesNothing(r *account.Record) bool {
	return r.Verdict != firewall.Allow && r.BytesUp|r.BytesDown == 0 || r.Reason == firewall.ReasonPolicyPage
}

func (l *Limit) admit(r *account.Record) bool {
	c := l.cause(r)
	if c.limiter.Allow() {
		return true
	}
	c.tally.Add(r.Client)
	return false
}

// cause finds or makes the cause of r.
func (l *Limit) cause(r *account.Record) *cause {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.causes {
		if c.kind == r.Kind && c.verdict == r.Verdict && c.reason == r.Reason {
			return c
		}
	}
	of := account.Record{Kind: r.Kind, Port: r.Port, Verdict: r.Verdict, Reason: r.Reason}
	c := &cause{
		kind: r.Kind, verdict: r.Verdict, reason: r.Reason, limiter: rate.NewLimiter(LineRate, LineBurst),
		tally: account.NewTally(of, account.Numbered("more of this kind and reason, without lines of their own"), l.Put),
	}
	l.causes = append(l.causes, c)
	return c
}

// End puts what is tallied and has no line yet. No record may be passed any more.
func (l *Limit) End() {
	l.mu.Lock()
	causes := l.causes
	l.mu.Unlock()
	for _, c := range causes {
		c.tally.End()
	}
}
