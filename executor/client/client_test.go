package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"sallyport/executor/api"
	"sallyport/executor/client"
)

const token = "a-token-of-the-tests"

// A server answers like an executor that has one execution of some events; its
// hooks break things.
type server struct {
	t      *testing.T
	events []api.Event

	mu       sync.Mutex // guards what follows
	requests []string   // method, path and query
	keys     []string   // the Idempotency-Key of each POST
	cut      []int      // how many events each stream sends before it breaks; then all
}

func newServer(t *testing.T, s *server) *client.Client {
	s.t = t
	srv := httptest.NewServer(s)
	t.Cleanup(srv.Close)
	return &client.Client{Addr: srv.URL, Token: token, Patience: 5 * time.Second}
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.requests = append(s.requests, r.Method+" "+r.URL.String())
	if r.Method == http.MethodPost {
		s.keys = append(s.keys, r.Header.Get("Idempotency-Key"))
	}
	cut := len(s.events)
	if len(s.cut) > 0 {
		cut, s.cut = s.cut[0], s.cut[1:]
	}
	s.mu.Unlock()
	if r.Header.Get("Authorization") != "Bearer "+token {
		problem(w, http.StatusUnauthorized, api.CodeUnauthorized, false)
		return
	}
	if cut < 0 { // the answer is lost
		panic(http.ErrAbortHandler)
	}
	var after int
	fmt.Sscan(r.URL.Query().Get("after"), &after)
	w.Header().Set("Content-Type", "application/x-ndjson")
	w.WriteHeader(http.StatusOK)
	for _, ev := range s.events[min(after, len(s.events)):] {
		if cut--; cut < 0 {
			io.WriteString(w, `{"seq": 99, "ty`) // torn
			http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		}
		json.NewEncoder(w).Encode(ev)
	}
}

func problem(w http.ResponseWriter, status int, code api.Code, retryable bool) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(api.Problem{Status: status, Code: code, Detail: "why", Retryable: retryable})
}

// events are the events of a run of n texts.
func events(n int) []api.Event {
	es := []api.Event{{Type: api.EventAccepted, Execution: "x1"}}
	for i := range n {
		es = append(es, api.Event{Type: api.EventText, Text: fmt.Sprint(i)})
	}
	es = append(es, api.Event{Type: api.EventResult, Result: &api.Result{Success: true, ExecutionID: "x1"}})
	for i := range es {
		es[i].Seq, es[i].Time = int64(i+1), time.Unix(int64(i), 0).UTC()
	}
	return es
}

func seqs(es []api.Event) (ns []int64) {
	for _, e := range es {
		ns = append(ns, e.Seq)
	}
	return ns
}

func TestExecute(t *testing.T) {
	tests := []struct {
		name string
		cut  []int
		want []string // the requests
	}{
		{"in one go", nil, []string{"POST /v1/executions"}},
		{"broken twice", []int{2, 1}, []string{
			"POST /v1/executions",
			"GET /v1/executions/x1/events?after=2&follow=true",
			"GET /v1/executions/x1/events?after=3&follow=true",
		}},
		{"broken before the last", []int{4, 0, 0}, []string{
			"POST /v1/executions",
			"GET /v1/executions/x1/events?after=4&follow=true",
			"GET /v1/executions/x1/events?after=4&follow=true",
			"GET /v1/executions/x1/events?after=4&follow=true",
		}},
		{"the first answer lost", []int{-1, 0, 1}, []string{
			"POST /v1/executions",
			"POST /v1/executions",
			"POST /v1/executions",
			"GET /v1/executions/x1/events?after=1&follow=true",
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := &server{events: events(3), cut: tt.cut}
			c := newServer(t, s)
			var got []api.Event
			for ev, err := range c.Execute(t.Context(), api.Request{Prompt: "p"}) {
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, ev)
			}
			if want := []int64{1, 2, 3, 4, 5}; !slices.Equal(seqs(got), want) {
				t.Errorf("events %v, want %v", seqs(got), want)
			}
			if !slices.Equal(s.requests, tt.want) {
				t.Errorf("requests\n%s\nwant\n%s", strings.Join(s.requests, "\n"), strings.Join(tt.want, "\n"))
			}
			if s.keys[0] == "" || len(slices.Compact(s.keys)) != 1 {
				t.Errorf("Idempotency-Keys %q, want one and the same", s.keys)
			}
		})
	}
}

func TestEvents(t *testing.T) {
	s := &server{events: events(3)[:4]} // no result yet
	c := newServer(t, s)
	var got []api.Event
	for ev, err := range c.Events(t.Context(), "a/../b?", 2, false) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, ev)
	}
	if want := []int64{3, 4}; !slices.Equal(seqs(got), want) {
		t.Errorf("events %v, want %v", seqs(got), want)
	}
	if want := "GET /v1/executions/a%2F..%2Fb%3F/events?after=2&follow=false"; s.requests[0] != want {
		t.Errorf("request %q, want %q", s.requests[0], want)
	}
}

func TestGivesUp(t *testing.T) {
	s := &server{events: events(3), cut: []int{2, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1}}
	c := newServer(t, s)
	c.Patience = 200 * time.Millisecond
	var last error
	n := 0
	for _, err := range c.Execute(t.Context(), api.Request{Prompt: "p"}) {
		n, last = n+1, err
	}
	if _, ok := errors.AsType[*client.UnreachableError](last); !ok || n != 3 {
		t.Errorf("after %d items: %v; want 2 events and an UnreachableError", n, last)
	}
}

func TestStopsWithItsContext(t *testing.T) {
	s := &server{events: events(3), cut: []int{2, -1, -1, -1, -1, -1, -1}}
	c := newServer(t, s)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var last error
	for ev, err := range c.Execute(ctx, api.Request{Prompt: "p"}) {
		if last = err; ev.Seq == 2 {
			cancel()
		}
	}
	if !errors.Is(last, context.Canceled) {
		t.Errorf("the end is %v, want that of the context", last)
	}
}

func TestRefusals(t *testing.T) {
	tests := []struct {
		name    string
		handler http.HandlerFunc
		want    any // *api.Problem with a code, or *client.UnreachableError
	}{
		{"problem", func(w http.ResponseWriter, r *http.Request) { problem(w, 422, api.CodeInvalidRequest, false) }, api.CodeInvalidRequest},
		{"busy", func(w http.ResponseWriter, r *http.Request) { problem(w, 503, api.CodeBusy, true) }, api.CodeBusy},
		{"another server", func(w http.ResponseWriter, r *http.Request) { http.NotFound(w, r) }, nil},
		{"a redirect", func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://192.0.2.1/", http.StatusTemporaryRedirect)
		}, nil},
		{"a problem of another kind", func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/problem+json")
			w.WriteHeader(404)
			io.WriteString(w, `{"title": "x"}`)
		}, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			requests := 0
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { requests++; tt.handler(w, r) }))
			defer srv.Close()
			c := &client.Client{Addr: srv.URL, Token: token}
			_, getErr := c.Get(t.Context(), "x")
			var runErr error
			for _, err := range c.Execute(t.Context(), api.Request{Prompt: "p"}) {
				runErr = err
			}
			for _, err := range []error{getErr, runErr} {
				p, isProblem := errors.AsType[*api.Problem](err)
				_, isUnreachable := errors.AsType[*client.UnreachableError](err)
				if tt.want == nil && !isUnreachable || tt.want != nil && (!isProblem || p.Code != tt.want) {
					t.Errorf("error %v, want %v", err, tt.want)
				}
			}
			if requests != 2 {
				t.Errorf("%d requests, want one for each call: a refusal is not tried again", requests)
			}
		})
	}
}

func TestNobodyThere(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := "http://" + ln.Addr().String()
	ln.Close()
	c := &client.Client{Addr: addr, Token: token}
	for _, err := range c.Execute(t.Context(), api.Request{Prompt: "p"}) {
		if u, ok := errors.AsType[*client.UnreachableError](err); !ok || u.Addr != addr {
			t.Errorf("error %v, want an UnreachableError", err)
		}
	}
}

func TestMalformedEvent(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "{\"seq\": \"one\"}\n") }))
	defer srv.Close()
	c := &client.Client{Addr: srv.URL, Token: token}
	n := 0
	for _, err := range c.Execute(t.Context(), api.Request{Prompt: "p"}) {
		if n++; err == nil {
			t.Error("an event of another shape is no error")
		}
	}
	if n != 1 {
		t.Errorf("%d items, want one error", n)
	}
}

func TestReady(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusServiceUnavailable)
		io.WriteString(w, `{"ready": false, "checks": [{"name": "gate", "ready": false, "detail": "gone"}]}`)
	}))
	defer srv.Close()
	c := &client.Client{Addr: srv.URL}
	r, err := c.Ready(t.Context())
	if err != nil || r.Ready || len(r.Checks) != 1 || r.Checks[0].Detail != "gone" {
		t.Errorf("Ready = %+v, %v", r, err)
	}
}

func TestList(t *testing.T) {
	var asked []string
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.Method+" "+r.URL.String())
		io.WriteString(w, `{"executions": [{"executionId": "x1", "state": "running", "taskId": "a&b"}], "next": "x1"}`)
	}))
	defer srv.Close()
	c := &client.Client{Addr: srv.URL, Token: token}
	list, err := c.List(t.Context(), client.Query{State: api.StateRunning, TaskID: "a&b", Policy: "p", Agent: "pi", Before: "x9", Limit: 7})
	if err != nil || len(list.Executions) != 1 || list.Executions[0].TaskID != "a&b" || list.Next != "x1" {
		t.Errorf("List = %+v, %v", list, err)
	}
	if _, err := c.List(t.Context(), client.Query{}); err != nil {
		t.Error(err)
	}
	want := []string{"GET /v1/executions?agent=pi&before=x9&limit=7&policy=p&state=running&taskId=a%26b", "GET /v1/executions"}
	if !slices.Equal(asked, want) {
		t.Errorf("asked %q, want %q", asked, want)
	}
}

// A check that has to wait for its turn waits.
func TestBoundaryCheckWaits(t *testing.T) {
	var calls atomic.Int64
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if calls.Add(1) > 1 {
			json.NewEncoder(w).Encode(api.BoundaryReport{Passed: true})
			return
		}
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(http.StatusTooManyRequests)
		json.NewEncoder(w).Encode(api.Problem{Status: http.StatusTooManyRequests, Code: api.CodeBusy, Retryable: true,
			Details: map[string]any{"retryAfterMs": 5}})
	}))
	defer srv.Close()
	c := &client.Client{Addr: srv.URL, Token: token}
	if r, err := c.BoundaryCheck(t.Context()); err != nil || !r.Passed || calls.Load() != 2 {
		t.Errorf("%+v, %v after %d calls", r, err, calls.Load())
	}
	calls.Store(0)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.BoundaryCheck(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}
