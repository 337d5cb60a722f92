package githubauth_test

import (
	"context"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"sallyport/githubauth/githubtest"
	"sallyport/githubauth/rest"
)

// TestCutAnswer: a token whose answer was cut behind it is revoked.
func TestCutAnswer(t *testing.T) {
	for name, cut := range map[string]func(http.ResponseWriter, []byte){
		"short of its length": func(w http.ResponseWriter, body []byte) {
			w.Header().Set("Content-Length", strconv.Itoa(len(body)))
			w.Write(body[:len(body)/2])
		},
		"well-framed, but half": func(w http.ResponseWriter, body []byte) { w.Write(body[:len(body)/2]) },
	} {
		inBubble(t, func(t *testing.T, b *bench) {
			const value = "ghs_" + githubtest.Mark + "cut0123456789012345678901234567"
			fault(mintKey, 0, func(w http.ResponseWriter, _ *http.Request) {
				b.github.Add(value)
				cut(w, []byte(`{"token": "`+value+`", "expires_at": "2000-01-01T01:00:00Z", "permissions": {"contents": "read", "metadata": "read"}, "repository_selection": "selected"}`))
			})(b.github, nil)
			token, err := b.app.Mint(t.Context(), grant(t, "read", "Acme", "shop"))
			failure(t, err, rest.ReasonMalformed)
			if token.Value() != "" || len(b.github.Alive()) > 0 {
				t.Errorf("%s: got %q; alive are %q", name, token.Value(), b.github.Alive())
			}
			noSecrets(t, b, err)
		})
	}
}

// TestGoneInTheMiddle: a token whose caller went while it came is revoked.
func TestGoneInTheMiddle(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		const value = "ghs_" + githubtest.Mark + "gone012345678901234567890123456"
		ctx, cancel := context.WithCancel(t.Context())
		fault(mintKey, 0, func(w http.ResponseWriter, r *http.Request) {
			io.Copy(io.Discard, r.Body)
			b.github.Add(value)
			io.WriteString(w, `{"token": "`+value+`", `)
			w.(http.Flusher).Flush()
			time.AfterFunc(time.Second, cancel)
			<-r.Context().Done()
			panic(http.ErrAbortHandler) // or the answer would have an end
		})(b.github, nil)
		_, err := b.app.Mint(ctx, grant(t, "read", "Acme", "shop"))
		failure(t, err, rest.ReasonCancelled)
		if alive := b.github.Alive(); len(alive) > 0 {
			t.Errorf("alive are %q", alive)
		}
		noSecrets(t, b, err)
	})
}

// TestStalledAnswer: a token whose answer stops behind it is revoked before there
// is another one, and only the other one is left.
func TestStalledAnswer(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		const value = "ghs_" + githubtest.Mark + "stalled0123456789012345678901234"
		goodAtTheNext := false
		b.github.Wrong = func(w http.ResponseWriter, r *http.Request, n int) bool {
			if key := r.Method + " " + r.URL.Path[1:]; key != mintKey {
				return false
			}
			if n > 1 {
				goodAtTheNext = slices.Contains(b.github.Alive(), value)
				return false
			}
			b.github.Add(value)
			io.WriteString(w, `{"token": "`+value+`", `)
			w.(http.Flusher).Flush()
			hang(w, r)
			panic(http.ErrAbortHandler) // or the answer would have an end
		}
		token, err := b.app.Mint(t.Context(), grant(t, "read", "Acme", "shop"))
		if err != nil || token.Value() == "" || token.Value() == value {
			t.Fatalf("%v, %v", token, err)
		}
		if alive := b.github.Alive(); len(alive) != 1 || alive[0] != token.Value() || goodAtTheNext {
			t.Errorf("alive are %q, the lost one when the next was asked for: %t", alive, goodAtTheNext)
		}
		noSecrets(t, b, err)
	})
}

// TestStalledAnswers: where none has an end, none of their tokens is left.
func TestStalledAnswers(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		fault(mintKey, 0, func(w http.ResponseWriter, r *http.Request) {
			value := "ghs_" + githubtest.Mark + strings.Repeat("0", 30) + strconv.Itoa(len(b.github.Tokens()))
			b.github.Add(value)
			io.WriteString(w, `{"token": "`+value+`", `)
			w.(http.Flusher).Flush()
			hang(w, r)
			panic(http.ErrAbortHandler)
		})(b.github, nil)
		start := time.Now()
		_, err := b.app.Mint(t.Context(), grant(t, "read", "Acme", "shop"))
		failure(t, err, rest.ReasonTimeout)
		if took := time.Since(start); took > 30*time.Second {
			t.Errorf("took %v", took)
		}
		minted := len(b.github.Tokens())
		if alive := b.github.Alive(); len(alive) > 0 || minted < 2 {
			t.Errorf("of %d tokens, alive are %q", minted, alive)
		}
		noSecrets(t, b, err)
	})
}
