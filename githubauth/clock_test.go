package githubauth_test

import (
	"strings"
	"testing"
	"time"

	"sallyport/githubauth"
	"sallyport/githubauth/githubtest"
	"sallyport/githubauth/rest"
)

// TestClock: a clock that is off by what happens is put right, and no more.
func TestClock(t *testing.T) {
	for _, test := range []struct {
		skew   time.Duration
		reason rest.Reason
		says   string
		warned bool
	}{
		{skew: 0},
		{skew: 45 * time.Second},
		{skew: -45 * time.Second},
		{skew: 5 * time.Minute, warned: true},
		{skew: -5 * time.Minute, warned: true},
		{skew: 9 * time.Minute, warned: true},
		{skew: 11 * time.Minute, reason: rest.ReasonClock, says: "11m0s behind GitHub's"},
		{skew: -26 * time.Hour, reason: rest.ReasonClock, says: "26h0m0s ahead of GitHub's"},
	} {
		inBubble(t, func(t *testing.T, b *bench) {
			g := grant(t, "read", "Acme", "shop")
			token, err := b.app.Mint(t.Context(), g)
			noSecrets(t, b, err)
			if got := strings.Contains(b.logs.String(), "clock"); got != test.warned {
				t.Errorf("%v: warned: %t: %s", test.skew, got, b.logs)
			}
			if test.reason != "" {
				if e := failure(t, err, test.reason); !strings.Contains(e.Error(), test.says) || e.Retryable {
					t.Errorf("%v: %v", test.skew, e)
				}
				return
			}
			if err != nil {
				t.Fatalf("%v: %v", test.skew, err)
			}
			if token.Lifetime != time.Hour {
				t.Errorf("%v: the token lives %v", test.skew, token.Lifetime)
			}
			before := b.github.Requests(mintKey)
			if _, err := b.app.Mint(t.Context(), g); err != nil || b.github.Requests(mintKey) != before+1 {
				t.Errorf("%v: the second mint: %v, after %d requests", test.skew, err, b.github.Requests(mintKey)-before)
			}
		}, func(f *githubtest.Server, _ *githubauth.Config) { f.Skew = test.skew })
	}
}

// TestClockThatIsSet: what was learned of a clock is unlearned.
func TestClockThatIsSet(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		for _, skew := range []time.Duration{5 * time.Minute, 0, -5 * time.Minute, 5 * time.Minute} {
			b.github.Lock()
			b.github.Skew = skew
			b.github.Unlock()
			if _, err := b.app.Mint(t.Context(), grant(t, "read", "Acme", "shop")); err != nil {
				t.Errorf("%v: %v", skew, err)
			}
		}
	})
}
