package watch

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// TestSaving has files written in steps, each of which a watcher hears of, and wants
// them read when the last one is done, or after two seconds.
func TestSaving(t *testing.T) {
	ms := func(n ...int) (all []time.Duration) {
		for _, i := range n {
			all = append(all, time.Duration(i)*time.Millisecond)
		}
		return all
	}
	var busy []time.Duration
	for at := range 30 {
		busy = append(busy, time.Duration(at)*100*time.Millisecond)
	}
	for name, test := range map[string]struct {
		writes []time.Duration
		heard  func(i int) bool
		read   []time.Duration
	}{
		"at once":                             {ms(0), nil, ms(300)},
		"in two steps":                        {ms(0, 180), nil, ms(480)},
		"the second while it is looked again": {ms(0, 250), nil, ms(550)},
		"the second unheard of":               {ms(0, 250), func(i int) bool { return i == 0 }, ms(400)},
		"two saves":                           {ms(0, 1000), nil, ms(300, 1300)},
		"without an end":                      {busy, nil, ms(2000, 3200)},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				begin := time.Now()
				var save saving
				var read []time.Duration
				written := 0
				sum := func() string { return string(rune('a' + written)) }
				end := time.After(5 * time.Second)
				next := time.After(test.writes[0])
				for {
					select {
					case <-next:
						written++
						if test.heard == nil || test.heard(written-1) {
							save.heard()
						}
						next = nil
						if written < len(test.writes) {
							next = time.After(test.writes[written] - time.Since(begin))
						}
					case <-save.next:
						if save.done(sum) {
							read = append(read, time.Since(begin))
						}
					case <-end:
						if !slices.Equal(read, test.read) {
							t.Errorf("read after %v, want after %v", read, test.read)
						}
						return
					}
				}
			})
		})
	}
}
