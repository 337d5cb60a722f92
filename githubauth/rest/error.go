package rest

import (
	"errors"
	"fmt"
	"net/http"
	"time"
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

	// Cause is a context's error or that of a grant, nothing that carries a request.
	Cause error
	Date  time.Time // of the answer, by GitHub's clock; zero where it did not say
	Says  string    // what GitHub wrote, as a part of Problem; "" where nothing
}

func (e *Error) Error() string {
	text := e.Op + ": " + e.Problem
	if e.Status != 0 {
		text += fmt.Sprintf(" (%d %s)", e.Status, http.StatusText(e.Status))
	}
	return text
}

// Unwrap gives context.Canceled and context.DeadlineExceeded to errors.Is.
func (e *Error) Unwrap() error { return e.Cause }

// Malformed is the error of an answer that GitHub does not give.
func Malformed(op, problem string) *Error {
	return &Error{Op: op, Reason: ReasonMalformed, Problem: problem}
}

// Absent reports whether what was asked for is not there, or not to be seen.
func Absent(err error) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && e.Status == http.StatusNotFound && e.Reason == ReasonNotPermitted
}

// Status is the HTTP status of a refusal, 0 where there is none.
func Status(err error) int {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Status
	}
	return 0
}
