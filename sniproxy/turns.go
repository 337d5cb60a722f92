package sniproxy

import "sallyport/internal/contain"

const (
	// sliceBytes is how many bytes a loop moves before it looks for new events: many
	// turns of short pieces, or one of bulk. A connection that comes waits no longer.
	sliceBytes = 256 << 10
	// turnCost is what a turn counts besides the bytes that it moves.
	turnCost = 4 << 10
)

// turns are the services whose tunnels have bytes to pass on. Each has a turn for
// one of its tunnels, then the next has: what a cell moves, over however many
// tunnels, holds up that of another cell by one turn of each. One that was silent
// for a whole round goes before all that were not, so that a few bytes of it wait
// for the turn that is under way alone (as fq_codel has it: RFC 8290, section 4.2).
type turns struct {
	fresh, others serviceQueue
	waiting       int // tunnels
}

// A serviceQueue is of services, those in others also without tunnels.
type serviceQueue struct{ first, last *service }

func (q *serviceQueue) push(v *service) {
	if q.first == nil {
		q.first, q.last = v, v
		return
	}
	q.last.due.next, q.last = v, v
}

func (q *serviceQueue) pop() *service {
	v := q.first
	q.first, v.due.next = v.due.next, nil
	return v
}

// A tunnelQueue is of those of one service.
type tunnelQueue struct {
	first, last *tunnel
	listed      bool     // among the turns
	next        *service // whose turn is after this one's
}

// add has a tunnel get a turn, unless it waits for one already.
func (ts *turns) add(t *tunnel) {
	if t.queued {
		return
	}
	t.queued = true
	ts.waiting++
	q := &t.v.due
	if q.first == nil {
		q.first, q.last = t, t
	} else {
		q.last.after, q.last = t, t
	}
	if !q.listed {
		q.listed = true
		ts.fresh.push(t.v)
	}
}

// take returns the next tunnel; there is one.
func (ts *turns) take() *tunnel {
	for {
		from := &ts.fresh
		if from.first == nil {
			from = &ts.others
		}
		v := from.pop()
		t := v.due.first
		if t == nil {
			v.due.listed = false
			continue
		}
		v.due.first, t.after, t.queued = t.after, nil, false
		ts.others.push(v) // also without a further tunnel: a round lasts until it is first again
		if ts.waiting--; ts.waiting == 0 {
			ts.rest()
		}
		return t
	}
}

// rest ends the round of those that have no tunnels; nobody has.
func (ts *turns) rest() {
	for ts.others.first != nil {
		ts.others.pop().due.listed = false
	}
}

// goOn gives tunnels their turns, for a slice of time.
func (l *loop) goOn() {
	for end, turns := l.moved+sliceBytes, 0; l.due.waiting > 0 && l.moved+turns*turnCost < end; turns++ {
		l.turn(l.due.take())
	}
}

func (l *loop) turn(t *tunnel) {
	defer contain.To(t)
	if t.stage == stageRelay {
		t.relay()
	}
}
