package account

import "sallyport/firewall"

// A Quota gives a bounded number of rows to decisions: in a receipt, in the events
// of a run. A sandbox makes as many refusals and look-ups as it likes, of names that
// it makes up, and they must not use up the rows for what it reached. So refusals
// get half of the rows at most, look-ups that were answered a quarter, and decisions
// about connections that carried anything all that is left. The zero Quota gives none.
type Quota struct {
	Max int // rows

	used [3]int // by sort
}

// The sorts of decision, by what it takes to make many of them.
const (
	sortRefused  = iota
	sortLookedUp // allowed, and nothing went out
	sortReached  // a server that a listed name leads to took part, once for each name
)

// sortOf is the sort of a decision. What was cut after bytes had passed is denied
// and has reached its host all the same.
func sortOf(r *Record) int {
	switch {
	case r.BytesUp|r.BytesDown != 0:
		return sortReached
	case r.Verdict != firewall.Allow:
		return sortRefused
	case r.Kind == KindDNS:
		return sortLookedUp
	}
	return sortReached
}

// Use gives a row to r, if there is one.
func (q *Quota) Use(r *Record) bool {
	sort := sortOf(r)
	share := [...]int{sortRefused: q.Max / 2, sortLookedUp: q.Max / 4, sortReached: q.Max}
	if q.total() >= q.Max || q.used[sort] >= share[sort] {
		return false
	}
	q.used[sort]++
	return true
}

// total is the number of rows that were given.
func (q *Quota) total() int { return q.used[sortRefused] + q.used[sortLookedUp] + q.used[sortReached] }
