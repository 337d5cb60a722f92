package executor

import (
	"sync"
	"time"
)

// A fresh shares the answers to a question among those who ask it at the same time,
// and gives nobody an answer to a question that was put before he came: what has
// been acknowledged to anyone by then, such as a reload of the allowlist, is in it.
// So it is no cache, and needs nothing to invalidate it.
type fresh[T any] struct {
	ask    func() (T, error)
	asking chan struct{} // holds a value while the question is put; put before mu is locked

	mu   sync.Mutex // guards next
	next *answer[T] // to the question that is not put yet; nil if nobody waits for it
}

type answer[T any] struct {
	given bool // guarded by asking, as are the others
	value T
	err   error
}

func newFresh[T any](ask func() (T, error)) *fresh[T] {
	return &fresh[T]{ask: ask, asking: make(chan struct{}, 1)}
}

// get returns the answer to a question that is put after the call.
func (f *fresh[T]) get() (T, error) {
	f.mu.Lock()
	if f.next == nil {
		f.next = new(answer[T])
	}
	a := f.next
	f.mu.Unlock()

	f.asking <- struct{}{}
	defer func() { <-f.asking }()
	if !a.given { // the first of those who wait for it puts it for all of them
		f.mu.Lock()
		f.next = nil // who comes from now on waits for another one
		f.mu.Unlock()
		a.value, a.err = f.ask()
		a.given = true
	}
	return a.value, a.err
}

// recentFor is how long an answer is a recent one.
const recentFor = time.Second

// A recent asks at most once a second, however many want to know: for answers that
// anybody may ask for, and that cost something.
type recent struct {
	ask func() error

	mu   sync.Mutex // guards what follows; held while asking
	last time.Time  // when it was last asked; zero for never
	err  error
}

func (r *recent) get() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.last.IsZero() || time.Since(r.last) >= recentFor {
		r.err = r.ask()
		r.last = time.Now()
	}
	return r.err
}
