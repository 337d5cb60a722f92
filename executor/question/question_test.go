package question_test

import (
	"sallyport/executor/question"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
)

// TestShared has many ask while a question is under way: they share the next
// one, and none gets the answer to the one before.
func TestShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int64
		release := make(chan struct{})
		f := question.NewShared(func() (int64, error) {
			n := asked.Add(1)
			<-release
			return n, nil
		})
		var wg sync.WaitGroup
		get := func(want int64) {
			wg.Go(func() {
				if n, err := f.Get(); n != want || err != nil {
					t.Errorf("answer %d, %v; want %d", n, err, want)
				}
			})
		}
		get(1)
		synctest.Wait()
		for range 50 {
			get(2)
		}
		synctest.Wait()
		release <- struct{}{}
		synctest.Wait()
		get(3)
		close(release)
		wg.Wait()
		if n := asked.Load(); n != 3 {
			t.Errorf("asked %d times, want 3", n)
		}
	})
}

// TestSharedIsNeverStale has callers note what was in force when they came: no answer
// may be older.
func TestSharedIsNeverStale(t *testing.T) {
	var inForce atomic.Int64
	f := question.NewShared(func() (int64, error) { return inForce.Load(), nil })
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 2000 {
				before := inForce.Add(1) // a reload that is acknowledged
				if got, _ := f.Get(); got < before {
					t.Errorf("the answer is of %d, and %d was in force", got, before)
					return
				}
			}
		})
	}
	wg.Wait()
}
