package tunnel

import "sallyport/internal/contain"

const (
	// sliceBytes is how many bytes a worker moves before it looks for new events: many
	// turns of short pieces, or one of bulk. A connection that comes waits no longer.
	sliceBytes = 256 << 10
	// turnCost is what a turn counts besides the bytes that it moves.
	turnCost = 4 << 10
)

// A schedule has the services whose tunnels have bytes to pass on. Each has a turn for
// one of its tunnels, then the next has: what a cell moves, over however many
// tunnels, holds up that of another cell by one turn of each. One that was silent
// for a whole round goes before all that were not, so that a few bytes of it wait
// for the turn that is under way alone (as fq_codel has it: RFC 8290, section 4.2).
type schedule struct {
	silent, others serviceQueue // those that had no turn in the round, and those that had
	waiting        int          // tunnels
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
	listed      bool     // in the schedule
	next        *service // whose turn is after this one's
}

// add has a tunnel get a turn, unless it waits for one already.
func (ts *schedule) add(t *tunnel) {
	if t.queued {
		return
	}
	t.queued = true
	ts.waiting++
	q := &t.v.due
	if q.first == nil {
		q.first, q.last = t, t
	} else {
		q.last.queuedNext, q.last = t, t
	}
	if !q.listed {
		q.listed = true
		ts.silent.push(t.v)
	}
}

// take returns the next tunnel; there is one.
func (ts *schedule) take() *tunnel {
	for {
		from := &ts.silent
		if from.first == nil {
			from = &ts.others
		}
		v := from.pop()
		t := v.due.first
		if t == nil {
			v.due.listed = false
			continue
		}
		v.due.first, t.queuedNext, t.queued = t.queuedNext, nil, false
		ts.others.push(v) // also without a further tunnel: a round lasts until it is first again
		if ts.waiting--; ts.waiting == 0 {
			ts.rest()
		}
		return t
	}
}

// rest ends the round of those that have no tunnels; nobody has.
func (ts *schedule) rest() {
	for ts.others.first != nil {
		ts.others.pop().due.listed = false
	}
}

// moveBytes gives tunnels their turns, for a slice of time.
func (m *mover) moveBytes() {
	for end, turns := m.moved+sliceBytes, 0; m.schedule.waiting > 0 && m.moved+turns*turnCost < end; turns++ {
		m.turn(m.schedule.take())
	}
}

func (m *mover) turn(t *tunnel) {
	defer contain.To(t)
	if t.stage == stageRelay {
		t.relay()
	}
}
