package rest

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"sallyport/githubauth/plain"

	"github.com/google/go-github/v62/github"
)

// noAnswer says why nothing came back.
func (c Call) noAnswer(err error) *Error {
	e := &Error{Op: c.Op, Reason: ReasonUnreachable, Retryable: true}
	timeout, ok := errors.AsType[net.Error](err)
	switch {
	case errors.Is(err, context.Canceled):
		e.Reason, e.Retryable, e.Problem, e.Cause = ReasonCancelled, false, "cancelled", context.Canceled
	case errors.Is(err, context.DeadlineExceeded), ok && timeout.Timeout():
		e.Reason, e.Problem, e.Cause = ReasonTimeout, "GitHub did not answer in time: try again later", context.DeadlineExceeded
	case untrusted(err):
		e.Retryable = false
		e.Problem = "the certificate of GitHub's API is not trusted here: add the CA that signed it, or look at what is in between: " + cause(err)
	default: // also where the App's Signer failed
		e.Problem = "there is no answer from GitHub's API: " + cause(err)
	}
	return e
}

func untrusted(err error) bool {
	_, bad := errors.AsType[*tls.CertificateVerificationError](err)
	return bad
}

// cause is the innermost part of a failed request's error, without its URL.
func cause(err error) string {
	if u, ok := errors.AsType[*url.Error](err); ok {
		err = u.Err
	}
	return plain.Line(err.Error())
}

// refused says what an answer that is no success means.
func (c Call) refused(resp *http.Response, err error) *Error {
	e := &Error{Op: c.Op, Status: resp.StatusCode}
	e.Date, _ = http.ParseTime(resp.Header.Get("Date"))
	says := message(err, resp.Request)
	e.Says = says
	code := resp.StatusCode
	_, secondary := errors.AsType[*github.AbuseRateLimitError](err)
	limited := secondary || resp.Header.Get("Retry-After") != "" || resp.Header.Get("X-RateLimit-Remaining") == "0"
	switch {
	case code == http.StatusTooManyRequests, code == http.StatusForbidden && limited:
		e.Reason, e.Retryable, e.RetryAfter = ReasonRateLimited, true, retryAfter(resp.Header)
		e.Problem = "GitHub's rate limit is used up" + says
	case code >= 500:
		e.Reason, e.Retryable, e.RetryAfter = ReasonServer, true, retryAfter(resp.Header)
		e.Problem = "GitHub failed" + says
	case code == http.StatusUnauthorized:
		e.Reason, e.Problem = ReasonUnauthorized, "GitHub does not take the credential"+says
	case code == http.StatusForbidden, code == http.StatusUnprocessableEntity, code == http.StatusNotFound:
		e.Reason, e.Problem = ReasonNotPermitted, "GitHub refuses it"+says
	case code >= 300 && code <= 399:
		e.Reason, e.Problem = ReasonMalformed, "GitHub answers with a redirect, which is not followed: is the address of its API right?"
	default:
		e.Reason, e.Problem = ReasonMalformed, "an answer that GitHub does not give: is the address of its API right?"+says
	}
	return e
}

// message is what GitHub wrote to go with a refusal, unless that repeats a part of
// the credential.
func message(err error, req *http.Request) string {
	var said string
	if e, ok := errors.AsType[*github.ErrorResponse](err); ok {
		said = e.Message
	} else if e, ok := errors.AsType[*github.RateLimitError](err); ok {
		said = e.Message
	} else if e, ok := errors.AsType[*github.AbuseRateLimitError](err); ok {
		said = e.Message
	}
	if said == "" || req == nil || repeats(said, req.Header.Get("Authorization")) {
		return ""
	}
	return `: it says "` + plain.Line(said) + `"`
}

// repeats reports whether text holds 12 bytes in a row of a header's credential.
func repeats(text, header string) bool {
	_, credential, _ := strings.Cut(header, " ")
	for i := 0; i+12 <= len(credential); i++ {
		if strings.Contains(text, credential[i:i+12]) {
			return true
		}
	}
	return false
}

// retryAfter is how long an answer asks to wait, 0 where it does not: Retry-After
// in seconds or as a time, else X-RateLimit-Reset, once the limit is used up.
func retryAfter(h http.Header) time.Duration {
	now, err := http.ParseTime(h.Get("Date")) // its own clock
	if err != nil {
		now = time.Now()
	}
	after := h.Get("Retry-After")
	if seconds, err := strconv.ParseInt(after, 10, 32); err == nil {
		return max(time.Duration(seconds)*time.Second, 0)
	}
	if at, err := http.ParseTime(after); err == nil {
		return max(at.Sub(now), 0)
	}
	if h.Get("X-RateLimit-Remaining") == "0" {
		if at, err := strconv.ParseInt(h.Get("X-RateLimit-Reset"), 10, 64); err == nil {
			return max(time.Unix(at, 0).Sub(now), 0)
		}
	}
	return 0
}
