package forward

import (
	"testing"

	"sallyport/internal/wallclock"
)

// Deadlines, rates, caches and pauses are as long as they should be while somebody
// sets the clock.
//
// probe: L7
// oracle: the tests named here, in a process whose wall clock jumps by hours each time
// it is read, as that process checks first
func TestClockJumps(t *testing.T) {
	wallclock.Jump(t, map[string]func(*testing.T){
		"TestForwardHeadDeadline": TestForwardHeadDeadline,
		"TestForwardKept":         TestForwardKeptConnection,
	})
}
