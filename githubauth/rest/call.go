package rest

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
	// Timeout bounds a call with all that it takes.
	Timeout = 30 * time.Second
)

// A Call is one request to GitHub.
type Call struct {
	Op           string // for messages
	Method, Path string
	Body         any
	Token        string // where the endpoint has no credential of its own
	// Lost gets what came of an answer that had no end, before the call is made
	// again. If nil, there is nothing in such an answer that matters.
	Lost func(part []byte)
}

// An Answer is what GitHub said to a call that it took.
type Answer struct {
	Status int // 2xx
	Body   []byte
	Header http.Header
}

// Do makes a call, again where that may help, until ctx ends. The error is an
// *Error, beside which may be a part of the last answer.
func (to *Endpoint) Do(ctx context.Context, c Call) (Answer, error) {
	var last *Error
	var part []byte
	once := func() (Answer, error) {
		if len(part) > 0 && c.Lost != nil {
			c.Lost(part)
		}
		a, err := attempt(ctx, to, c)
		part = a.Body
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
	limit := Timeout
	if deadline, ok := ctx.Deadline(); ok {
		limit = max(time.Until(deadline), time.Millisecond) // 0 would be none
	}
	a, err := backoff.Retry(ctx, once, backoff.WithBackOff(waits), backoff.WithMaxElapsedTime(limit))
	if err == nil {
		return a, nil
	}
	if ended := ctx.Err(); errors.Is(ended, context.Canceled) {
		last = &Error{Op: c.Op, Reason: ReasonCancelled, Problem: "cancelled", Cause: ended}
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
func attempt(ctx context.Context, to *Endpoint, c Call) (Answer, *Error) {
	ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	client := to.client()
	req, err := client.NewRequest(c.Method, c.Path, c.Body)
	if err != nil {
		return Answer{}, &Error{Op: c.Op, Reason: ReasonInvalidGrant, Problem: "the request cannot be made"}
	}
	if c.Token != "" {
		req.Header.Set("Authorization", "Bearer "+c.Token)
	}
	resp, err := client.BareDo(ctx, req)
	if resp == nil {
		return Answer{}, c.noAnswer(err)
	}
	defer resp.Body.Close()
	if code := resp.StatusCode; code < 200 || code > 299 {
		return Answer{}, c.refused(resp.Response, err)
	}
	body, err := io.ReadAll(resp.Body)
	a := Answer{Status: resp.StatusCode, Body: body, Header: resp.Header}
	switch {
	case err == nil:
		return a, nil
	case ctx.Err() != nil:
		return a, c.noAnswer(ctx.Err()) // what there is of the answer may hold a token
	}
	e := Malformed(c.Op, "the connection ended in the middle of the answer: try again")
	e.Retryable = true
	return a, e
}

// Decode reads the JSON of an answer.
func Decode(op string, body []byte, into any) error {
	if err := json.Unmarshal(body, into); err != nil {
		return Malformed(op, "GitHub's answer is not the JSON that it should be: is the address of its API right?")
	}
	return nil
}
