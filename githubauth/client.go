package githubauth

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/google/go-github/v62/github"
)

const (
	// DefaultAPIBaseURL is the API of github.com.
	DefaultAPIBaseURL = "https://api.github.com/"

	attemptTimeout = 10 * time.Second // of one request
	overallTimeout = 30 * time.Second // of a call with all that it takes
	maxAnswer      = 1 << 20          // bytes; an installation with 500 repositories answers some 700 kB at most
	userAgent      = "sallyport"
)

// A Dial opens a connection, as net.Dialer.DialContext does.
type Dial func(ctx context.Context, network, addr string) (net.Conn, error)

// parseBase checks the address of an API and completes it: GitHub Enterprise
// Server's is under /api/v3/.
func parseBase(base string) (*url.URL, error) {
	if base == "" {
		base = DefaultAPIBaseURL
	}
	u, err := url.Parse(base)
	switch {
	case err != nil:
		return nil, errors.New("the address of GitHub's API is not a URL")
	case u.Scheme != "https":
		return nil, fmt.Errorf("the address of GitHub's API has to begin with https://, not %q", clean(u.Scheme))
	case u.User != nil || u.RawQuery != "" || u.Fragment != "" || u.Hostname() == "":
		return nil, errors.New("the address of GitHub's API is a host and a path, such as https://github.example.com/api/v3/")
	}
	u.Host = strings.ToLower(u.Host)
	client, err := github.NewClient(nil).WithEnterpriseURLs(u.String(), u.String())
	if err != nil {
		return nil, errors.New("the address of GitHub's API is not a URL")
	}
	return client.BaseURL, nil
}

// newTransport trusts roots, the system's where nil, and goes through the proxy
// that the environment names.
func newTransport(roots *x509.CertPool, dial Dial) http.RoundTripper {
	if dial == nil {
		dial = (&net.Dialer{Timeout: attemptTimeout}).DialContext
	}
	return capped{&http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		DialContext:         dial,
		ForceAttemptHTTP2:   true,
		TLSClientConfig:     &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12},
		TLSHandshakeTimeout: attemptTimeout,
		IdleConnTimeout:     time.Minute,
		MaxIdleConns:        8,
	}}
}

// capped bounds what is read of an answer, of which go-github reads all.
type capped struct{ next http.RoundTripper }

func (c capped) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := c.next.RoundTrip(req)
	if err == nil {
		resp.Body = struct {
			io.Reader
			io.Closer
		}{io.LimitReader(resp.Body, maxAnswer), resp.Body}
	}
	return resp, err
}

// An endpoint is a GitHub to which requests go with one kind of credential.
type endpoint struct {
	base *url.URL
	http *http.Client
}

// newEndpoint follows no redirect: it would carry the credential along.
func newEndpoint(base *url.URL, transport http.RoundTripper) *endpoint {
	return &endpoint{base, &http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// client is made for each request: go-github's remembers a rate limit and then
// refuses by itself, and that is GitHub's to say.
func (e *endpoint) client() *github.Client {
	client := github.NewClient(e.http)
	client.BaseURL, client.UserAgent = e.base, userAgent
	return client
}

// A call is one request to GitHub.
type call struct {
	op           string // for messages
	method, path string
	body         any
	token        string // where the client has no credential of its own
}

// An answer is what GitHub said to a call that it took.
type answer struct {
	body   []byte
	header http.Header
}

// do makes a call, again where that may help, until ctx ends. The error is an
// *Error, beside which may be a part of the answer.
func do(ctx context.Context, to *endpoint, c call) (answer, error) {
	var last *Error
	once := func() (answer, error) {
		a, err := attempt(ctx, to, c)
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
	a := answer{body: body, header: resp.Header}
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

// noAnswer says why nothing came back.
func (c call) noAnswer(err error) *Error {
	e := &Error{Op: c.op, Reason: ReasonUnreachable, Retryable: true}
	timeout, ok := errors.AsType[net.Error](err)
	switch {
	case errors.Is(err, context.Canceled):
		e.Reason, e.Retryable, e.Problem, e.err = ReasonCancelled, false, "cancelled", context.Canceled
	case errors.Is(err, context.DeadlineExceeded), ok && timeout.Timeout():
		e.Reason, e.Problem, e.err = ReasonTimeout, "GitHub did not answer in time: try again later", context.DeadlineExceeded
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
	return clean(err.Error())
}

// refused says what an answer that is no success means.
func (c call) refused(resp *http.Response, err error) *Error {
	e := &Error{Op: c.op, Status: resp.StatusCode}
	e.date, _ = http.ParseTime(resp.Header.Get("Date"))
	says := message(err, resp.Request)
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
	return `: it says "` + clean(said) + `"`
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

func malformed(op, problem string) *Error {
	return &Error{Op: op, Reason: ReasonMalformed, Problem: problem}
}

// decode reads the JSON of an answer.
func decode(op string, body []byte, into any) error {
	if err := json.Unmarshal(body, into); err != nil {
		return malformed(op, "GitHub's answer is not the JSON that it should be: is the address of its API right?")
	}
	return nil
}
