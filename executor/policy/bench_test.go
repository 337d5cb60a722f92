package policy_test

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"sallyport/executor/policy"
)

// BenchmarkResolve computes the policy of the release workflow's task, reading document
// and task each time, among two and among a thousand tenants and profiles; p50 and p99 in
// µs, and the median beside that of decoding the same two texts with encoding/json alone.
func BenchmarkResolve(b *testing.B) {
	small := example(b, "yaml profiles")
	var tenants, profiles strings.Builder
	for i := range 1000 {
		fmt.Fprintf(&tenants, "  t%d: {profiles: all, egress: [strict], time: 1h}\n", i)
		fmt.Fprintf(&profiles, "  p%d: {egress: [strict], tasks: all, time: 2h}\n", i)
	}
	large := strings.Replace(strings.Replace(small, "tenants:\n", "tenants:\n"+tenants.String(), 1), "\nprofiles:\n", "\nprofiles:\n"+profiles.String(), 1)
	for name, text := range map[string]string{"small": small, "large": large} {
		b.Run(name, func(b *testing.B) {
			ps := parse(b, text)
			in := installed()
			var took, bare []time.Duration
			for b.Loop() {
				start := time.Now()
				q := query(b, "acme", releaseDocument, "", publishTask)
				if _, denial := ps.Resolve(q, in); denial != nil {
					b.Fatal(denial)
				}
				took = append(took, time.Since(start))
				start = time.Now()
				for _, text := range []string{releaseDocument, publishTask} {
					var v any
					if err := json.Unmarshal([]byte(text), &v); err != nil {
						b.Fatal(err)
					}
				}
				bare = append(bare, time.Since(start))
			}
			at := func(all []time.Duration, share int) float64 {
				slices.Sort(all)
				return float64(all[(len(all)-1)*share/100].Nanoseconds()) / 1e3
			}
			b.ReportMetric(at(took, 50), "p50-µs")
			b.ReportMetric(at(took, 99), "p99-µs")
			b.ReportMetric(at(took, 50)/at(bare, 50), "p50/decode")
		})
	}
}

const publishTask = `{"run": {"shell": {}}, "security": {"sandbox": {"mode": "per-task"}, "secrets": ["github-release-token"]}}`

// BenchmarkLive is what a request pays beside that to know that the file has not changed.
func BenchmarkLive(b *testing.B) {
	path := filepath.Join(b.TempDir(), "profiles.yaml")
	if err := os.WriteFile(path, []byte(example(b, "yaml profiles")), 0o600); err != nil {
		b.Fatal(err)
	}
	live, err := policy.Open(path, slog.New(slog.DiscardHandler))
	if err != nil {
		b.Fatal(err)
	}
	time.Sleep(3 * time.Second) // until then it is read each time, as it could change within a tick
	for b.Loop() {
		live.Profiles()
	}
}
