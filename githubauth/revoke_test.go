package githubauth_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"sallyport/githubauth/githubtest"
	"sallyport/githubauth/rest"
)

func TestRevokeFaults(t *testing.T) {
	const key, value = "DELETE installation/token", "ghs_" + githubtest.Mark + "00000000000000000000000000000000"
	for _, test := range []struct {
		name   string
		answer func(http.ResponseWriter, *http.Request)
		times  int
		reason rest.Reason
		took   time.Duration
	}{
		{"404", status(404), 0, "", time.Second},
		{"401", status(401), 0, "", time.Second},
		{"500, then well", status(500), 1, "", 2 * time.Second},
		{"hangs once", hang, 1, "", 12 * time.Second},
		{"a rate limit", status(429, "Retry-After", "5"), 1, "", 6 * time.Second},
		{"500 for ever", status(500), 0, rest.ReasonServer, 30 * time.Second},
		{"hangs for ever", hang, 0, rest.ReasonTimeout, 30 * time.Second},
		{"200, by something in between", status(200), 0, rest.ReasonMalformed, time.Second},
		{"403", status(403), 0, rest.ReasonNotPermitted, time.Second},
	} {
		inBubble(t, func(t *testing.T, b *bench) {
			b.github.Add(value)
			start := time.Now()
			err := b.app.Revoke(t.Context(), value)
			if took := time.Since(start); took > test.took {
				t.Errorf("%s: took %v", test.name, took)
			}
			if test.reason == "" {
				if err != nil {
					t.Errorf("%s: %v", test.name, err)
				}
				return
			}
			failure(t, err, test.reason)
			noSecrets(t, b, err, value)
		}, fault(key, test.times, test.answer))
	}
	inBubble(t, func(t *testing.T, b *bench) {
		for _, bad := range []string{"", "a b", "x\r\nEvil: 1", strings.Repeat("x", 5000)} {
			failure(t, b.app.Revoke(t.Context(), bad), rest.ReasonInvalidGrant)
		}
		if n := b.github.Requests(key); n != 0 {
			t.Errorf("%d requests", n)
		}
	})
}
