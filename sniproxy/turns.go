package sniproxy

const (
	// sliceBytes is how many bytes a loop moves before it looks for new events: many
	// turns of short pieces, or one of bulk. A connection that comes waits no longer.
	sliceBytes = 256 << 10
	// turnCost is what a turn counts besides the bytes that it moves.
	turnCost = 4 << 10
)

// turns are the services whose tunnels have bytes to pass on. Each has a turn for
// one of its tunnels, then the next has: what a cell moves, over however many
// tunnels, holds up that of another cell by one turn of each.
type turns struct{ first, last *service }

// A tunnelQueue is of those of one service.
type tunnelQueue struct {
	first, last *tunnel
	next        *service // whose turn is after this one's
}

// add has a tunnel get a turn, unless it waits for one already.
func (ts *turns) add(t *tunnel) {
	if t.queued {
		return
	}
	t.queued = true
	q := &t.v.due
	if q.first != nil {
		q.last.after, q.last = t, t
		return
	}
	q.first, q.last = t, t
	ts.push(t.v)
}

func (ts *turns) push(v *service) {
	if ts.first == nil {
		ts.first, ts.last = v, v
		return
	}
	ts.last.due.next, ts.last = v, v
}

// take returns the next tunnel; there is one.
func (ts *turns) take() *tunnel {
	v := ts.first
	q := &v.due
	ts.first, q.next = q.next, nil
	t := q.first
	if q.first, t.after = t.after, nil; q.first != nil {
		ts.push(v)
	}
	t.queued = false
	return t
}

// goOn gives tunnels their turns, for a slice of time.
func (l *loop) goOn() {
	for end, turns := l.moved+sliceBytes, 0; l.due.first != nil && l.moved+turns*turnCost < end; turns++ {
		l.turn(l.due.take())
	}
}

func (l *loop) turn(t *tunnel) {
	defer contain(t)
	if t.stage == stageRelay {
		t.relay()
	}
}
