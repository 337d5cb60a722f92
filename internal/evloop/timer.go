package evloop

import (
	"container/heap"
	"time"
)

// A Timer calls its owner back, once, from a loop. The zero Timer has no owner and is
// not set.
type Timer struct {
	Owner interface{ Expired() }

	at    time.Time
	index int // in the heap, plus one; 0 if it is not set
}

// IsSet reports whether the owner is to be called back.
func (t *Timer) IsSet() bool { return t.index > 0 }

// Set sets or moves a timer.
func (l *Loop) Set(t *Timer, at time.Time) {
	t.at = at
	if t.index > 0 {
		heap.Fix(&l.timers, t.index-1)
		return
	}
	heap.Push(&l.timers, t)
}

// Unset has a timer not call back, if it is set.
func (l *Loop) Unset(t *Timer) {
	if t.index > 0 {
		heap.Remove(&l.timers, t.index-1)
	}
}

// timers are those that are set, the earliest first: a heap.
type timers []*Timer

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
	t := x.(*Timer)
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

// expire calls the owners whose time has come.
func (l *Loop) expire() {
	for len(l.timers) > 0 && !l.timers[0].at.After(l.Now) {
		t := heap.Pop(&l.timers).(*Timer)
		t.Owner.Expired()
	}
}
