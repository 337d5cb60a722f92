package githubauth

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/cenkalti/backoff/v5"
)

const (
	attemptTimeout = 10 * time.Second // of one request
	overallTimeout = 30 * time.Second // of a call with all that it takes
)

// A call is one request to GitHub.
type call struct {
	op           string // for messages
	method, path string
	body         any
	token        string // where the client has no credential of its own
	// lost gets what came of an answer that had no end, before the call is made
	// again. If nil, there is nothing in such an answer that matters.
	lost func(part []byte)
}

// An answer is what GitHub said to a call that it took.
type answer struct {
	status int // 2xx
	body   []byte
	header http.Header
}

// do makes a call, again where that may help, until ctx ends. The error is an
// *Error, beside which may be a part of the last answer.
func do(ctx context.Context, to *endpoint, c call) (answer, error) {
	var last *Error
	var part []byte
	once := func() (answer, error) {
		if len(part) > 0 && c.lost != nil {
			c.lost(part)
		}
		a, err := attempt(ctx, to, c)
		part = a.body
		if err == nil {
			return a, nil
		}
		last = err
		switch {
		case !passing(err):
			return a, backoff.Permanent(err)
		case err.RetryAfter > 0:
			return a, &backoff.RetryAfterError{Duration: err.RetryAfter}
		}
		return a, err
	}
	waits := backoff.NewExponentialBackOff()
	waits.InitialInterval, waits.MaxInterval, waits.Multiplier = 500*time.Millisecond, 5*time.Second, 2
	limit := overallTimeout
	if deadline, ok := ctx.Deadline(); ok {
		limit = max(time.Until(deadline), time.Millisecond) // 0 would be none
	}
	a, err := backoff.Retry(ctx, once, backoff.WithBackOff(waits), backoff.WithMaxElapsedTime(limit))
	if err == nil {
		return a, nil
	}
	if ended := ctx.Err(); errors.Is(ended, context.Canceled) {
		last = &Error{Op: c.op, Reason: ReasonCancelled, Problem: "cancelled", err: ended}
	}
	return a, last
}

// passing reports whether what failed may pass within seconds.
func passing(e *Error) bool {
	switch e.Reason {
	case ReasonUnreachable, ReasonTimeout, ReasonServer, ReasonRateLimited:
		return e.Retryable
	}
	return false
}

// attempt makes a call once.
func attempt(ctx context.Context, to *endpoint, c call) (answer, *Error) {
	ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	client := to.client()
	req, err := client.NewRequest(c.method, c.path, c.body)
	if err != nil {
		return answer{}, &Error{Op: c.op, Reason: ReasonInvalidGrant, Problem: "the request cannot be made"}
	}
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	resp, err := client.BareDo(ctx, req)
	if resp == nil {
		return answer{}, c.noAnswer(err)
	}
	defer resp.Body.Close()
	if code := resp.StatusCode; code < 200 || code > 299 {
		return answer{}, c.refused(resp.Response, err)
	}
	body, err := io.ReadAll(resp.Body)
	a := answer{status: resp.StatusCode, body: body, header: resp.Header}
	switch {
	case err == nil:
		return a, nil
	case ctx.Err() != nil:
		return a, c.noAnswer(ctx.Err()) // what there is of the answer may hold a token
	}
	e := malformed(c.op, "the connection ended in the middle of the answer: try again")
	e.Retryable = true
	return a, e
}

// decode reads the JSON of an answer.
func decode(op string, body []byte, into any) error {
	if err := json.Unmarshal(body, into); err != nil {
		return malformed(op, "GitHub's answer is not the JSON that it should be: is the address of its API right?")
	}
	return nil
}
