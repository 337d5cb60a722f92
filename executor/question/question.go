// Package question puts questions that cost something, to a gate or an engine, less often
// than they are asked.
package question

import (
	"sync"
	"time"
)

// A Shared is put once for all who ask it at the same time. Nobody gets an answer
// that is older than the call: what was acknowledged to anyone before, such as a reload of
// the allowlist, is in it. So it is no cache, and needs nothing to invalidate it.
type Shared[T any] struct {
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

// NewShared makes a question; ask may be called from any goroutine, one at a time.
func NewShared[T any](ask func() (T, error)) *Shared[T] {
	return &Shared[T]{ask: ask, asking: make(chan struct{}, 1)}
}

// Get returns the answer to a question that is put after the call.
func (s *Shared[T]) Get() (T, error) {
	s.mu.Lock()
	if s.next == nil {
		s.next = new(answer[T])
	}
	a := s.next
	s.mu.Unlock()

	s.asking <- struct{}{}
	defer func() { <-s.asking }()
	if !a.given { // the first of those who wait for it puts it for all of them
		s.mu.Lock()
		s.next = nil // who comes from now on waits for another one
		s.mu.Unlock()
		a.value, a.err = s.ask()
		a.given = true
	}
	return a.value, a.err
}

// answerAge is how old an answer to a Throttled may be.
const answerAge = time.Second

// A Throttled is asked at most once a second, however many want to know: for answers that
// anybody may ask for, and that cost something.
type Throttled struct {
	ask func() error
	now func() time.Time

	mu   sync.Mutex // guards what follows; held while asking
	last time.Time  // when it was last asked; zero for never
	err  error
}

// NewThrottled makes a question; now is time.Now, or a test's.
func NewThrottled(ask func() error, now func() time.Time) *Throttled {
	return &Throttled{ask: ask, now: now}
}

// Get returns the answer, which is at most a second old.
func (t *Throttled) Get() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.last.IsZero() || t.now().Sub(t.last) >= answerAge {
		t.err = t.ask()
		t.last = t.now()
	}
	return t.err
}
