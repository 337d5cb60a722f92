package sniproxy

import (
	"container/heap"
	"time"
)

// A timer calls its owner back, once, from a loop.
type timer struct {
	at    time.Time
	index int // in the heap, plus one; 0 if it is not set
	owner interface{ expired() }
}

// set sets or moves a timer.
func (l *loop) set(t *timer, at time.Time) {
	t.at = at
	if t.index > 0 {
		heap.Fix(&l.timers, t.index-1)
		return
	}
	heap.Push(&l.timers, t)
}

func (l *loop) unset(t *timer) {
	if t.index > 0 {
		heap.Remove(&l.timers, t.index-1)
	}
}

// timers are those that are set, the earliest first: a heap.
type timers []*timer

func (ts timers) next() time.Time {
	if len(ts) == 0 {
		return time.Time{}
	}
	return ts[0].at
}

func (ts timers) Len() int           { return len(ts) }
func (ts timers) Less(i, j int) bool { return ts[i].at.Before(ts[j].at) }
func (ts timers) Swap(i, j int) {
	ts[i], ts[j] = ts[j], ts[i]
	ts[i].index, ts[j].index = i+1, j+1
}

func (ts *timers) Push(x any) {
	t := x.(*timer)
	*ts = append(*ts, t)
	t.index = len(*ts)
}

func (ts *timers) Pop() any {
	last := len(*ts) - 1
	t := (*ts)[last]
	(*ts)[last] = nil
	*ts = (*ts)[:last]
	t.index = 0
	return t
}

// expire ends what is late.
func (l *loop) expire() {
	for len(l.timers) > 0 && !l.timers[0].at.After(l.now) {
		t := heap.Pop(&l.timers).(*timer)
		t.owner.expired()
	}
}
