package tunnel

import (
	"testing"

	"sallyport/internal/wallclock"
	"sallyport/sniproxy/testnet"
)

// Deadlines, rates, caches and pauses are as long as they should be while somebody
// sets the clock.
//
// probe: L7
// oracle: the tests named here, in a process whose wall clock jumps by hours each time
// it is read, as that process checks first
func TestClockJumps(t *testing.T) {
	wallclock.Jump(t, map[string]func(*testing.T){
		"TestTunnelReplaysHello":  TestTunnelReplaysHello, // not too early
		"TestTunnelQuiet":         TestTunnelQuiet,
		"TestTunnelHelloDeadline": TestTunnelHelloDeadline, // nor too late
		"durations":               testDurations,
	})
}

// testDurations wants that a record tells how long a connection took, whatever its
// time says.
func testDurations(t *testing.T) {
	c, k := newTunnelCell(t, nil)
	for i := range 20 {
		client, up := c.open(k)
		client.Close()
		up.Close()
		if r := c.Last(i + 1); r.DurationMS < 0 || r.DurationMS > testnet.Patience.Milliseconds() {
			t.Errorf("record %+v", r)
		}
	}
}
