package settings_test

import (
	"net/netip"
	"testing"

	"sallyport/gate/settings"
)

// TestMetricsAddress names addresses that cells could reach.
//
// probe: N8
// oracle: the settings that are refused, beside one that is taken
func TestMetricsAddress(t *testing.T) {
	for _, bad := range []string{":9180", "0.0.0.0:9180", "[::]:9180", "[::ffff:0.0.0.0]:9180", "224.0.0.1:9180", "localhost:9180", "127.0.0.1", "*:9180"} {
		if s, err := settings.Parse([]string{"SALLYPORT_METRICS_LISTEN=" + bad}); err == nil {
			t.Errorf("%q gives %v", bad, s.MetricsListen)
		}
	}
	s, err := settings.Parse([]string{"SALLYPORT_METRICS_LISTEN=127.0.0.1:9180"})
	if err != nil || netip.AddrPort(s.MetricsListen).String() != "127.0.0.1:9180" {
		t.Errorf("%v, %v", s.MetricsListen, err)
	}
}
