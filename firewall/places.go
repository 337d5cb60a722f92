package firewall

// A Places hands out a bounded number of places to decisions: the rows of a
// receipt, the events of a run. A sandbox makes refusals and look-ups as it likes,
// of names that it makes up, and what it reached must not want for a place because
// of that: refusals have half of the places at most, look-ups that were answered a
// quarter, and decisions about connections that carried anything all that is left.
type Places struct {
	Most int // of them

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
	case r.Verdict != Allow:
		return sortRefused
	case r.Kind == KindDNS:
		return sortLookedUp
	}
	return sortReached
}

// Take takes a place for r, if there is one.
func (p *Places) Take(r *Record) bool {
	sort := sortOf(r)
	share := [...]int{sortRefused: p.Most / 2, sortLookedUp: p.Most / 4, sortReached: p.Most}
	if p.taken() >= p.Most || p.used[sort] >= share[sort] {
		return false
	}
	p.used[sort]++
	return true
}

func (p *Places) taken() int { return p.used[sortRefused] + p.used[sortLookedUp] + p.used[sortReached] }
