package githubauth_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/golang-jwt/jwt/v4"

	"sallyport/githubauth"
	"sallyport/githubauth/githubtest"
	"sallyport/githubauth/rest"
)

// inBubble runs f in a synctest bubble, where time-outs and waits take no time,
// against a GitHub on connections in memory.
func inBubble(t *testing.T, f func(*testing.T, *bench), set ...func(*githubtest.Server, *githubauth.Config)) {
	t.Helper()
	githubtest.Keys() // outside of the bubble
	synctest.Test(t, func(t *testing.T) {
		t.Helper()
		ln := newPipes()
		b := newBench(t, ln, set...)
		f(t, b)
	})
}

const mintKey = "POST app/installations/11/access_tokens"

// fault answers requests of one kind in its own way: the first ones, or all where
// times is 0.
func fault(key string, times int, answer func(http.ResponseWriter, *http.Request)) func(*githubtest.Server, *githubauth.Config) {
	return func(f *githubtest.Server, _ *githubauth.Config) {
		f.Wrong = func(w http.ResponseWriter, r *http.Request, n int) bool {
			if r.Method+" "+strings.TrimPrefix(r.URL.Path, f.Base+"/") != key || times > 0 && n > times {
				return false
			}
			answer(w, r)
			return true
		}
	}
}

func hang(_ http.ResponseWriter, r *http.Request) {
	io.Copy(io.Discard, r.Body) // the server looks for the client's end only then
	<-r.Context().Done()
}

func status(code int, headers ...string) func(http.ResponseWriter, *http.Request) {
	return func(w http.ResponseWriter, r *http.Request) {
		for i := 0; i+1 < len(headers); i += 2 {
			w.Header().Set(headers[i], headers[i+1])
		}
		w.WriteHeader(code)
		// What comes in comes back, whole or in part: no error may repeat it.
		credential := r.Header.Get("Authorization")
		fmt.Fprintf(w, `{"message": "no luck %s"}`, credential[len(credential)*(code%3)/3:])
	}
}

func reset(in time.Duration) string { // by the clock of the bubble
	return strconv.FormatInt(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC).Add(in).Unix(), 10)
}

// TestMintFaults: each fault has its reason, and leaves no token behind.
func TestMintFaults(t *testing.T) {
	const lookUp = "GET users/Acme/installation"
	tests := []struct {
		name      string
		set       func(*githubtest.Server, *githubauth.Config)
		reason    rest.Reason // "" where the mint succeeds
		status    int
		retryable bool
		tries     int           // of the mint; 0 is not looked at
		took      time.Duration // at most
	}{
		{"a hanging mint", fault(mintKey, 0, hang), rest.ReasonTimeout, 0, true, 0, 30 * time.Second},
		{"a hanging look-up", fault(lookUp, 0, hang), rest.ReasonTimeout, 0, true, 0, 30 * time.Second},
		{"hangs once", fault(mintKey, 1, hang), "", 0, false, 2, 12 * time.Second},
		{"500, then well", fault(mintKey, 1, status(500)), "", 0, false, 2, 2 * time.Second},
		{"502 twice at the look-up", fault(lookUp, 2, status(502)), "", 0, false, 1, 4 * time.Second},
		{"500 for ever", fault(mintKey, 0, status(500)), rest.ReasonServer, 500, true, 0, 30 * time.Second},
		{"503 with a long Retry-After", fault(mintKey, 0, status(503, "Retry-After", "120")), rest.ReasonServer, 503, true, 1, time.Second},
		{"403", fault(mintKey, 0, status(403)), rest.ReasonNotPermitted, 403, false, 1, time.Second},
		{"403 at the look-up", fault(lookUp, 0, status(403)), rest.ReasonNotPermitted, 403, false, 0, time.Second},
		{"a short rate limit", fault(mintKey, 1, status(403, "Retry-After", "7")), "", 0, false, 2, 8 * time.Second},
		{"a rate limit that is reset soon", fault(mintKey, 1, status(403, "X-RateLimit-Remaining", "0", "X-RateLimit-Reset", reset(9*time.Second))), "", 0, false, 2, 10 * time.Second},
		{"a long rate limit", fault(mintKey, 0, status(429, "Retry-After", "3600")), rest.ReasonRateLimited, 429, true, 1, time.Second},
		{"a rate limit until far", fault(mintKey, 0, status(403, "X-RateLimit-Remaining", "0", "X-RateLimit-Reset", reset(time.Hour))), rest.ReasonRateLimited, 403, true, 1, time.Second},
		{"404 at the mint", fault(mintKey, 0, status(404)), rest.ReasonNotPermitted, 404, false, 2, time.Second},
		{"401", fault(mintKey, 0, status(401)), rest.ReasonUnauthorized, 401, false, 1, time.Second},
		{"another App's key", func(f *githubtest.Server, _ *githubauth.Config) { f.Key = &githubtest.Keys().Other.PublicKey }, rest.ReasonUnauthorized, 401, false, 0, time.Second},
		{"422", fault(mintKey, 0, status(422)), rest.ReasonNotPermitted, 422, false, 1, time.Second},
		{"a redirect", fault(mintKey, 0, status(307, "Location", "https://evil.example/")), rest.ReasonMalformed, 307, false, 1, time.Second},
		{"a teapot", fault(mintKey, 0, status(418)), rest.ReasonMalformed, 418, false, 1, time.Second},
		{"no JSON", fault(mintKey, 0, func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "<html>") }), rest.ReasonMalformed, 0, false, 1, time.Second},
		{"an empty object", fault(mintKey, 0, func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "{}") }), rest.ReasonMalformed, 0, false, 1, time.Second},
		{"an installation without number", fault(lookUp, 0, func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "{}") }), rest.ReasonMalformed, 0, false, 0, time.Second},
		{"a renamed owner", fault(lookUp, 0, func(w http.ResponseWriter, _ *http.Request) {
			io.WriteString(w, `{"id": 11, "account": {"login": "NewName"}}`)
		}), rest.ReasonNotInstalled, 0, false, 0, time.Second},
		{"nobody listens", func(_ *githubtest.Server, c *githubauth.Config) { c.Dial = refuse }, rest.ReasonUnreachable, 0, true, 0, 30 * time.Second},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *bench) {
				start := time.Now()
				token, err := b.app.Mint(t.Context(), grant(t, "repo-write", "Acme", "shop"))
				if took := time.Since(start); took > test.took {
					t.Errorf("took %v", took)
				}
				if tries := b.github.Requests(mintKey); test.tries != 0 && tries != test.tries {
					t.Errorf("%d requests for a token, want %d", tries, test.tries)
				}
				noSecrets(t, b, err)
				if test.reason == "" {
					if err != nil || token.Value() == "" {
						t.Errorf("%v, %v", token, err)
					}
					return
				}
				e := failure(t, err, test.reason)
				if e.Status != test.status || e.Retryable != test.retryable {
					t.Errorf("status %d, retryable %t: %v", e.Status, e.Retryable, e)
				}
				if token.Value() != "" || len(b.github.Alive()) > 0 {
					t.Errorf("got %q; alive are %q", token.Value(), b.github.Alive())
				}
				t.Log(err)
			}, test.set)
		})
	}
}

func refuse(context.Context, string, string) (c net.Conn, err error) {
	return nil, errors.New("connection refused")
}

// TestUntrusted: what a certificate is wrong about does not pass, and is said.
func TestUntrusted(t *testing.T) {
	for name, set := range map[string]func(*githubtest.Server, *githubauth.Config){
		"an unknown CA":              func(_ *githubtest.Server, c *githubauth.Config) { c.Roots = nil },
		"another host's certificate": func(_ *githubtest.Server, c *githubauth.Config) { c.APIBaseURL = "https://other.example/" },
	} {
		b := newBench(t, nil, set)
		_, err := b.app.Mint(t.Context(), grant(t, "read", "Acme", "shop"))
		if e := failure(t, err, rest.ReasonUnreachable); e.Retryable || !strings.Contains(e.Error(), "certificate") {
			t.Errorf("%s: %v", name, e)
		}
		if n := strings.Count(b.dialed.String(), "\n"); n != 1 {
			t.Errorf("%s: dialed %d times", name, n)
		}
	}
}

// A brokenSigner is another process that does not sign.
type brokenSigner struct{}

func (brokenSigner) Sign(jwt.Claims) (string, error) {
	return "", errors.New("the key service said ghs_" + githubtest.Mark + "0123456789 is not yours")
}

// TestSigner: any Signer will do, and one that fails is an error like the others.
func TestSigner(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		_, err := b.app.Mint(t.Context(), grant(t, "read", "Acme", "shop"))
		if e := failure(t, err, rest.ReasonUnreachable); !strings.Contains(e.Error(), "the key service said [redacted] is not yours") {
			t.Error(e)
		}
		if n := b.github.Requests("GET users/Acme/installation"); n != 0 {
			t.Errorf("%d requests without a signature", n)
		}
	}, func(_ *githubtest.Server, c *githubauth.Config) { c.Signer = brokenSigner{} })
}

func TestRetryAfterIsToldOn(t *testing.T) {
	for name, set := range map[string]func(*githubtest.Server, *githubauth.Config){
		"seconds": fault(mintKey, 0, status(403, "Retry-After", "3600")),
		"a date":  fault(mintKey, 0, status(429, "Retry-After", "Sat, 01 Jan 2000 01:00:00 GMT")),
		"a reset": fault(mintKey, 0, status(403, "X-RateLimit-Remaining", "0", "X-RateLimit-Reset", reset(time.Hour))),
	} {
		inBubble(t, func(t *testing.T, b *bench) {
			_, err := b.app.Mint(t.Context(), grant(t, "read", "Acme", "shop"))
			if e := failure(t, err, rest.ReasonRateLimited); e.RetryAfter.Round(time.Minute) != time.Hour {
				t.Errorf("%s: retry after %v", name, e.RetryAfter)
			}
		}, set)
	}
}

// TestCallersDeadline: a shorter time than Mint's own counts, and so does cancelling.
func TestCallersDeadline(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		start := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		_, err := b.app.Mint(ctx, grant(t, "read", "Acme", "shop"))
		failure(t, err, rest.ReasonTimeout)
		if took := time.Since(start); took != 3*time.Second || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("took %v: %v", took, err)
		}
		ctx, cancel = context.WithCancel(t.Context())
		time.AfterFunc(2*time.Second, cancel)
		_, err = b.app.Mint(ctx, grant(t, "read", "Acme", "shop"))
		failure(t, err, rest.ReasonCancelled)
		if took := time.Since(start); took != 5*time.Second || !errors.Is(err, context.Canceled) {
			t.Errorf("took %v: %v", took, err)
		}
	}, fault(mintKey, 0, hang))
}
