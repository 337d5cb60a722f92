package resolve

import (
	"testing"

	"sallyport/internal/wallclock"
)

// Look-ups go on to the next server in time while somebody sets the clock.
//
// probe: L7
// oracle: the test named here, in a process whose wall clock jumps by hours each time
// it is read, as that process checks first
func TestClockJumps(t *testing.T) {
	wallclock.Jump(t, map[string]func(*testing.T){"TestResolveNextServer": TestResolveNextServer})
}
