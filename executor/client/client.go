// Package client talks to the executor's HTTP API.
//
// A Client starts runs and follows their events, over broken connections too:
// what it yields has every event once and in order. An answer that refuses
// something is an *api.Problem; an executor that cannot be talked to at all is an
// *UnreachableError.
//
//	c := &client.Client{Addr: "http://127.0.0.1:7280", Token: token}
//	for ev, err := range c.Execute(ctx, api.Request{Prompt: "Say hello."}) {
//		...
//	}
package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"sallyport/executor/api"
)

// The bounds of a call that has one answer.
const (
	callTimeout     = 30 * time.Second
	boundaryTimeout = 7 * time.Minute
	maxAnswer       = 256 << 20 // bytes; a result holds the output of a run
)

// A Client is safe for concurrent use; its fields must not change after the
// first call.
type Client struct {
	// Addr is the executor's base URL, such as http://127.0.0.1:7280, or unix:// and the
	// path of its socket, where nobody but root and this process's user may listen.
	Addr string
	// Token is the bearer token. Health and Ready need none.
	Token string
	// Tenant is whose things the calls are about, where it is not the token's: for who
	// operates the service. "all" stands for every one.
	Tenant string
	// Patience is how long a broken event stream is tried again without getting
	// anywhere; if 0, two minutes.
	Patience time.Duration
	// Transport carries the requests to an Addr of http or https; if nil, one of our own,
	// which uses no proxy, since the token is for the executor alone.
	Transport http.RoundTripper
}

// An UnreachableError says that no executor answered at Addr.
type UnreachableError struct {
	Addr string
	Err  error
}

func (e *UnreachableError) Error() string {
	return fmt.Sprintf("the executor at %s cannot be reached: %v", e.Addr, e.Err)
}

func (e *UnreachableError) Unwrap() error { return e.Err }

// direct is the transport of clients that have none of their own.
var direct = &http.Transport{
	DialContext:         (&net.Dialer{Timeout: 10 * time.Second, KeepAlive: 15 * time.Second}).DialContext,
	TLSHandshakeTimeout: 10 * time.Second,
	MaxIdleConns:        8,
	IdleConnTimeout:     30 * time.Second,
}

// A Query says which executions to list; its zero value means the newest of all.
type Query struct {
	State, TaskID, Policy, Agent string // exact; if empty, all
	// Before is the identifier of an execution; only those accepted before it are
	// listed. For the next page it is what ExecutionList.Next says.
	Before string
	Limit  int // at most api.ListLimit; if 0, api.DefaultListLimit
}

// List returns one page of the executions, newest first.
func (c *Client) List(ctx context.Context, q Query) (api.ExecutionList, error) {
	values := url.Values{}
	for name, value := range map[string]string{"state": q.State, "taskId": q.TaskID, "policy": q.Policy, "agent": q.Agent, "before": q.Before} {
		if value != "" {
			values.Set(name, value)
		}
	}
	if q.Limit != 0 {
		values.Set("limit", strconv.Itoa(q.Limit))
	}
	path := "/v1/executions"
	if len(values) > 0 {
		path += "?" + values.Encode()
	}
	var v api.ExecutionList
	err := c.call(ctx, callTimeout, http.MethodGet, path, &v)
	return v, err
}

// errNoID is an empty identifier, whose path would be that of the list.
var errNoID = errors.New("the identifier of the execution is empty")

// Get returns an execution, with its result once it has finished.
func (c *Client) Get(ctx context.Context, id string) (api.Execution, error) {
	var x api.Execution
	if id == "" {
		return x, errNoID
	}
	err := c.call(ctx, callTimeout, http.MethodGet, "/v1/executions/"+url.PathEscape(id), &x)
	return x, err
}

// Cancel asks for the end of an execution, and returns without waiting for it.
func (c *Client) Cancel(ctx context.Context, id string) (api.Execution, error) {
	var x api.Execution
	if id == "" {
		return x, errNoID
	}
	err := c.call(ctx, callTimeout, http.MethodDelete, "/v1/executions/"+url.PathEscape(id), &x)
	return x, err
}

// BoundaryCheck has the executor try now to get out of a cell of its own, which
// takes some seconds, and waits where somebody has asked for that a moment ago. A
// report of probes that got through is no error.
func (c *Client) BoundaryCheck(ctx context.Context) (api.BoundaryReport, error) {
	ctx, cancel := context.WithTimeout(ctx, boundaryTimeout)
	defer cancel()
	for {
		var v api.BoundaryReport
		err := c.call(ctx, boundaryTimeout, http.MethodPost, "/v1/boundary/check", &v)
		var p *api.Problem
		if !errors.As(err, &p) || p.Status != http.StatusTooManyRequests {
			return v, err
		}
		wait, _ := p.Details["retryAfterMs"].(float64)
		select {
		case <-time.After(time.Duration(max(wait, 1)) * time.Millisecond):
		case <-ctx.Done():
			return v, context.Cause(ctx)
		}
	}
}

// Resolve computes an effective policy. One that is refused is an *api.Problem.
func (c *Client) Resolve(ctx context.Context, r api.PolicyRequest) (api.EffectivePolicy, error) {
	var p api.EffectivePolicy
	err := c.ask(ctx, "/v1/policy/resolve", r, &p)
	return p, err
}

// Route says where a task runs.
func (c *Client) Route(ctx context.Context, r api.RouteRequest) (api.Route, error) {
	var answer api.Route
	err := c.ask(ctx, "/v1/policy/route", r, &answer)
	return answer, err
}

// Health says that the executor's process is alive.
func (c *Client) Health(ctx context.Context) (api.Health, error) {
	var v api.Health
	err := c.call(ctx, callTimeout, http.MethodGet, "/healthz", &v)
	return v, err
}

// Ready says whether a run could start now. That it could not is no error.
func (c *Client) Ready(ctx context.Context) (api.Readiness, error) {
	var v api.Readiness
	err := c.call(ctx, callTimeout, http.MethodGet, "/readyz", &v, http.StatusServiceUnavailable)
	return v, err
}

// call makes one request and decodes its answer into v. A status of also is an
// answer like 200.
func (c *Client) call(ctx context.Context, timeout time.Duration, method, path string, v any, also ...int) error {
	return c.exchange(ctx, timeout, method, path, nil, v, also...)
}

// ask posts a question, or what is to be made.
func (c *Client) ask(ctx context.Context, path string, question, v any) error {
	body, err := json.Marshal(question)
	if err != nil {
		return fmt.Errorf("encode a body: %w", err)
	}
	return c.exchange(ctx, callTimeout, http.MethodPost, path, body, v)
}

func (c *Client) exchange(ctx context.Context, timeout time.Duration, method, path string, body []byte, v any, also ...int) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	resp, err := c.send(ctx, method, path, "application/json", body, nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if err := c.refusal(resp, also...); err != nil {
		return err
	}
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxAnswer)).Decode(v); err != nil {
		return c.unreachable(fmt.Errorf("read its answer to %s %s: %w", method, path, err))
	}
	return nil
}

// send makes a request and returns the answer, whatever its status.
func (c *Client) send(ctx context.Context, method, path, accept string, body []byte, header http.Header) (*http.Response, error) {
	base, transport := c.way()
	req, err := http.NewRequestWithContext(ctx, method, base+path, bytes.NewReader(body))
	if err != nil {
		return nil, c.unreachable(err)
	}
	if c.Tenant != "" {
		query := req.URL.Query()
		query.Set("tenant", c.Tenant)
		req.URL.RawQuery = query.Encode()
	}
	for name, values := range header {
		req.Header[name] = values
	}
	req.Header.Set("Accept", accept)
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if c.Token != "" {
		req.Header.Set("Authorization", "Bearer "+c.Token)
	}
	resp, err := transport.RoundTrip(req) // follows no redirect: the token goes nowhere else
	switch {
	case err != nil && ctx.Err() != nil && context.Cause(ctx) != context.DeadlineExceeded:
		return nil, context.Cause(ctx)
	case err != nil:
		return nil, c.unreachable(err)
	}
	return resp, nil
}

func (c *Client) unreachable(err error) error { return &UnreachableError{Addr: c.Addr, Err: err} }

// refusal is nil for an answer of 2xx, else the problem that it carries.
func (c *Client) refusal(resp *http.Response, also ...int) error {
	if resp.StatusCode/100 == 2 {
		return nil
	}
	kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	for _, status := range also {
		if resp.StatusCode == status && kind == "application/json" {
			return nil
		}
	}
	var p api.Problem
	if kind == "application/problem+json" && json.NewDecoder(io.LimitReader(resp.Body, 1<<20)).Decode(&p) == nil && p.Code != "" {
		return &p
	}
	return c.unreachable(fmt.Errorf("what answers there (%s) is not an executor", resp.Status))
}
