package githubauth_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"sallyport/githubauth/githubtest"
	"sallyport/githubauth/rest"
)

// A leakingHub gives away in its answers what it should not: token, the credential
// that came and the App's key. It revokes nothing.
type leakingHub struct {
	*githubtest.Server
	token string
}

// parrot is a refusal that says all that there is.
func (h leakingHub) parrot(w http.ResponseWriter, r *http.Request, code int) {
	_, credential, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	w.Header().Set("X-Token", h.token)
	h.JSON(w, code, map[string]any{"message": h.token + " " + credential + " " + credential[5:] + " -----BEGIN RSA PRIVATE KEY----- " + keyForms()[1],
		"errors": []any{map[string]any{"message": h.token, "field": credential}}, "documentation_url": "https://docs.github.com/" + h.token})
}

// begin writes an answer's beginning, with the token.
func (h leakingHub) begin(w http.ResponseWriter) {
	h.Add(h.token)
	fmt.Fprintf(w, `{"token": %q, "note": %q, `, h.token, keyForms()[1])
}

// TestFaultsLeakNothing: whatever fails, and whatever GitHub says of it, what is said
// here has no secret in it.
//
// probe: G10
// oracle: a search of errors and log for 31 bytes in a row of any token, JWT or key that was in an
// answer or a request, plain, in hexadecimal and in base64
func TestFaultsLeakNothing(t *testing.T) {
	scope := func(h leakingHub, w http.ResponseWriter, change func(*githubtest.Given)) {
		h.Add(h.token)
		answer := githubtest.Given{Token: h.token, ExpiresAt: h.Now().Add(time.Hour), Selection: "selected",
			Permissions:  map[string]string{"contents": "read", "issues": "read", "pull_requests": "read", "metadata": "read"},
			Repositories: []map[string]any{{"full_name": "Acme/shop"}}}
		change(&answer)
		h.JSON(w, 201, answer)
	}
	for _, test := range []struct {
		name   string
		reason rest.Reason
		left   bool // a token came that could not be revoked, and the log says so
		skew   time.Duration
		mint   func(h leakingHub, w http.ResponseWriter, r *http.Request)
	}{
		{"no answer", rest.ReasonTimeout, false, 0, func(_ leakingHub, w http.ResponseWriter, r *http.Request) { hang(w, r) }},
		{"half an answer", rest.ReasonTimeout, true, 0, func(h leakingHub, w http.ResponseWriter, r *http.Request) {
			h.begin(w)
			w.(http.Flusher).Flush()
			hang(w, r)
			panic(http.ErrAbortHandler)
		}},
		{"500", rest.ReasonServer, false, 0, func(h leakingHub, w http.ResponseWriter, r *http.Request) { h.parrot(w, r, 500) }},
		{"503 with Retry-After", rest.ReasonServer, false, 0, func(h leakingHub, w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Retry-After", "3600")
			h.parrot(w, r, 503)
		}},
		{"401", rest.ReasonUnauthorized, false, 0, func(h leakingHub, w http.ResponseWriter, r *http.Request) { h.parrot(w, r, 401) }},
		{"403", rest.ReasonNotPermitted, false, 0, func(h leakingHub, w http.ResponseWriter, r *http.Request) { h.parrot(w, r, 403) }},
		{"404", rest.ReasonNotPermitted, false, 0, func(h leakingHub, w http.ResponseWriter, r *http.Request) { h.parrot(w, r, 404) }},
		{"422", rest.ReasonNotPermitted, false, 0, func(h leakingHub, w http.ResponseWriter, r *http.Request) { h.parrot(w, r, 422) }},
		{"429", rest.ReasonRateLimited, false, 0, func(h leakingHub, w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Retry-After", "3600")
			h.parrot(w, r, 429)
		}},
		{"a redirect", rest.ReasonMalformed, false, 0, func(h leakingHub, w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Location", "https://evil.example/"+h.token)
			h.parrot(w, r, 302)
		}},
		{"cut by length", rest.ReasonMalformed, true, 0, func(h leakingHub, w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "100000")
			h.begin(w)
		}},
		{"cut, but whole", rest.ReasonMalformed, true, 0, func(h leakingHub, w http.ResponseWriter, _ *http.Request) { h.begin(w) }},
		{"no JSON", rest.ReasonMalformed, false, 0, func(h leakingHub, w http.ResponseWriter, _ *http.Request) { io.WriteString(w, h.token) }},
		{"wider permissions", rest.ReasonWiderScope, true, 0, func(h leakingHub, w http.ResponseWriter, _ *http.Request) {
			scope(h, w, func(a *githubtest.Given) { a.Permissions[h.token] = h.token })
		}},
		{"wider repositories", rest.ReasonWiderScope, true, 0, func(h leakingHub, w http.ResponseWriter, _ *http.Request) {
			scope(h, w, func(a *githubtest.Given) { a.Repositories[0]["full_name"] = "Acme/" + h.token })
		}},
		{"narrower", rest.ReasonNarrowerScope, true, 0, func(h leakingHub, w http.ResponseWriter, _ *http.Request) {
			scope(h, w, func(a *githubtest.Given) { delete(a.Permissions, "issues") })
		}},
		{"a time that is none", rest.ReasonMalformed, true, 0, func(h leakingHub, w http.ResponseWriter, _ *http.Request) {
			scope(h, w, func(a *githubtest.Given) { a.ExpiresAt = h.token })
		}},
		{"a clock that is far off", rest.ReasonClock, false, 26 * time.Hour, nil},
		{"a clock that is off, and 403", rest.ReasonNotPermitted, false, 5 * time.Minute, func(h leakingHub, w http.ResponseWriter, r *http.Request) { h.parrot(w, r, 403) }},
	} {
		t.Run(test.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *bench) {
				h := leakingHub{b.github, "ghs_" + githubtest.Mark + "leaks0123456789012345678901234567"}
				b.github.Skew, b.github.Wrong = test.skew, h.wrong(test.mint)
				_, err := b.app.Mint(t.Context(), grant(t, "read", "Acme", "shop"))
				failure(t, err, test.reason)
				if said := strings.Contains(b.logs.String(), "could not be revoked"); said != test.left {
					t.Errorf("of a token that is left the log says: %q", b.logs)
				}
				if clock := strings.Contains(b.logs.String(), "clock"); clock != (test.skew == 5*time.Minute) {
					t.Errorf("of the clock the log says: %q", b.logs)
				}
				noSecrets(t, b, err, h.token, h.token[10:])
			})
		})
	}
}

// wrong answers mints with mint and refuses to revoke. Where its clock is another, it
// says which JWT it does not take for that.
func (h leakingHub) wrong(mint func(leakingHub, http.ResponseWriter, *http.Request)) func(http.ResponseWriter, *http.Request, int) bool {
	return func(w http.ResponseWriter, r *http.Request, n int) bool {
		switch key := r.Method + " " + r.URL.Path[1:]; {
		case key == "DELETE installation/token":
			h.parrot(w, r, 403)
		case key == mintKey && mint != nil:
			mint(h, w, r)
		case key == "GET users/Acme/installation" && h.Skew != 0 && n == 1:
			h.parrot(w, r, 401)
		default:
			return false
		}
		return true
	}
}
