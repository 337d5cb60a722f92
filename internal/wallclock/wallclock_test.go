package wallclock

import (
	"testing"
	"time"
)

// A deadline by the monotonic clock holds, one by the wall clock does not.
func TestJump(t *testing.T) {
	Jump(t, map[string]func(*testing.T){
		"monotonic": func(t *testing.T) {
			began := time.Now()
			for range 200 {
				if d := time.Since(began); d < 0 || d > hour/2 {
					t.Fatalf("%v have passed", d)
				}
			}
		},
		"wall": func(t *testing.T) {
			began, off := time.Now().Round(0), 0
			for range 200 {
				if d := time.Now().Round(0).Sub(began); d < 0 || d > hour/2 {
					off++
				}
			}
			if off < 50 {
				t.Errorf("%d of 200 readings are off", off)
			}
		},
	})
}
