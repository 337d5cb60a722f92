package gate

import (
	"testing"

	"sallyport/internal/wallclock"
)

// Leases, reloads and the file of decisions do what they should while somebody sets
// the clock.
//
// probe: L7
// oracle: the tests named here, in a process whose wall clock jumps by hours each time
// it is read, as that process checks first
func TestClockJumps(t *testing.T) {
	wallclock.Jump(t, map[string]func(*testing.T){
		"TestLease":              TestLease,
		"TestReleaseCutsTunnels": TestReleaseCutsTunnels,
		"TestRestartHasNoLeases": TestRestartHasNoLeases,
		"TestBudgetReloaded":     TestBudgetReloaded,
		"TestFullDiskDenies":     TestFullDiskDenies,
		"TestLogThatFailsDenies": TestLogThatFailsDenies,
		"TestWatch":              TestWatch,
	})
}
