package output

import (
	"fmt"
	"strings"
	"sync"
	"testing"
)

// TestBuffer writes from several goroutines and reads meanwhile: lines stay whole.
func TestBuffer(t *testing.T) {
	var b Buffer
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 100 {
				fmt.Fprintln(&b, "a line")
				if s := b.String(); !strings.HasSuffix(s, "a line\n") {
					t.Errorf("a line is torn: %q", s)
				}
			}
		})
	}
	wg.Wait()
	if n := strings.Count(b.String(), "a line\n"); n != 400 {
		t.Errorf("%d lines, want 400", n)
	}
}
