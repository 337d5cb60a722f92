package githubauth

import (
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"time"
	"unicode"
)

// A Reason is a stable word for what went wrong.
type Reason string

// The reasons.
const (
	ReasonInvalidGrant  Reason = "invalid_grant"  // nothing was sent: the request is not one that may be
	ReasonUnreachable   Reason = "unreachable"    // no connection, or one whose certificate is not trusted
	ReasonTimeout       Reason = "timeout"        // no answer in time
	ReasonCancelled     Reason = "cancelled"      // by the caller
	ReasonUnauthorized  Reason = "unauthorized"   // GitHub takes the credential for none of its own
	ReasonClock         Reason = "clock"          // this machine's clock is too far from GitHub's
	ReasonNotInstalled  Reason = "not_installed"  // the owner has not installed the App
	ReasonNotPermitted  Reason = "not_permitted"  // the installation lacks a permission or a repository, or is suspended
	ReasonRateLimited   Reason = "rate_limited"   // RetryAfter says for how long
	ReasonServer        Reason = "server"         // GitHub failed
	ReasonMalformed     Reason = "malformed"      // an answer that is not GitHub's
	ReasonWiderScope    Reason = "wider_scope"    // the token could do more than was asked; it was revoked
	ReasonNarrowerScope Reason = "narrower_scope" // the token could do less than was asked; it was revoked
)

// An Error is a request to GitHub that failed. Its text says what to do about it
// and holds no credential.
type Error struct {
	Op     string // what was attempted, such as "mint a token for acme"
	Status int    // of HTTP; 0 where there was no answer
	Reason Reason
	// Retryable says that the same request may succeed later.
	Retryable bool
	// RetryAfter is how long GitHub asked to wait; 0 where it did not say.
	RetryAfter time.Duration
	Problem    string // what is wrong, and what to do

	// err is a context's error or that of a grant, nothing that carries a request.
	err  error
	date time.Time // of the answer, by GitHub's clock; zero where it did not say
	says string    // what GitHub wrote, as a part of Problem; "" where nothing
}

func (e *Error) Error() string {
	text := e.Op + ": " + e.Problem
	if e.Status != 0 {
		text += fmt.Sprintf(" (%d %s)", e.Status, http.StatusText(e.Status))
	}
	return text
}

// Unwrap gives context.Canceled and context.DeadlineExceeded to errors.Is.
func (e *Error) Unwrap() error { return e.err }

// secretForms are the shapes of GitHub's tokens (its documentation, "GitHub's token
// formats"), of a JWT and of a PEM, whole or cut.
var secretForms = regexp.MustCompile(`gh[a-z]_[A-Za-z0-9_.-]+|github_pat_\w+|eyJ[\w-]{8,}(\.[\w-]*)*|-----BEGIN[^\x00]*`)

// maxQuoted bounds what an error quotes of another's text, in bytes.
const maxQuoted = 200

// clean makes text of others fit to be quoted: one line, short, and without
// anything that looks like a credential.
func clean(text string) string {
	text = secretForms.ReplaceAllString(text, "[redacted]")
	text = strings.ToValidUTF8(text, "?")
	text = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, text)
	if len(text) > maxQuoted {
		text = strings.ToValidUTF8(text[:maxQuoted], "") + "..."
	}
	return text
}
