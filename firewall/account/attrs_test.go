package account

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"testing"
	"time"

	"sallyport/firewall"
)

// TestLogAttrs requires that a record has the same keys and values in the log as
// in its JSON, all but the time.
func TestLogAttrs(t *testing.T) {
	full := Record{
		Time: time.Unix(1, 0), Run: "r", Cell: "c", Policy: "strict", Digest: "sha256:0", Kind: KindTLS,
		Host: "github.com", Port: 443, Verdict: firewall.Deny, Reason: firewall.ReasonBudget, Allowed: firewall.ReasonListed, Rule: ".github.com", Line: 7, Detail: "d",
		Client: netip.MustParseAddrPort("172.30.0.3:50000"), Upstream: netip.MustParseAddrPort("140.82.121.4:443"),
		BytesUp: 1, BytesDown: 2, DurationMS: 3,
	}
	for name, r := range map[string]Record{"full": full, "zero": {}} {
		data, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		var want map[string]any
		if err := json.Unmarshal(data, &want); err != nil {
			t.Fatal(err)
		}
		delete(want, "time")

		var out bytes.Buffer
		drop := func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey || a.Key == slog.LevelKey || a.Key == slog.MessageKey {
				return slog.Attr{}
			}
			return a
		}
		log := slog.New(slog.NewJSONHandler(&out, &slog.HandlerOptions{ReplaceAttr: drop}))
		log.LogAttrs(context.Background(), slog.LevelInfo, "", r.LogAttrs()...)
		var got map[string]any
		if err := json.Unmarshal(out.Bytes(), &got); err != nil {
			t.Fatal(err)
		}
		if !maps.Equal(got, want) {
			t.Errorf("%s: log %v\nJSON %v", name, slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(want)))
		}
	}
}
