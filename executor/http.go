package executor

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"sallyport/executor/api"
	"sallyport/executor/caller"
)

// A route is one operation of the API.
type route struct {
	method, path string        // path as in net/http's patterns
	needs        caller.Rights // of the caller; with none, no token is needed
	handle       func(http.ResponseWriter, *http.Request, caller.Caller)
}

// routes are all operations; the OpenAPI document has each of them.
func (e *Executor) routes() []route {
	return []route{
		{http.MethodPost, "/v1/executions", caller.Run, e.postExecution},
		{http.MethodGet, "/v1/executions", caller.Read, e.getExecutions},
		{http.MethodGet, "/v1/executions/{id}", caller.Read, e.getExecution},
		{http.MethodDelete, "/v1/executions/{id}", caller.Run, e.deleteExecution},
		{http.MethodGet, "/v1/executions/{id}/events", caller.Read, e.getEvents},
		{http.MethodGet, "/v1/executions/{id}/artifacts", caller.Read, e.getArtifacts},
		{http.MethodGet, "/v1/executions/{id}/artifacts/{name...}", caller.Read, e.getArtifact},
		{http.MethodGet, "/v1/workflows/{definition}/{instance}", caller.Read, e.getWorkflow},
		{http.MethodGet, "/v1/capabilities", caller.Read, e.getCapabilities},
		{http.MethodPost, "/v1/policy/resolve", caller.Read, e.postResolve},
		{http.MethodPost, "/v1/policy/route", caller.Read, e.postRoute},
		{http.MethodGet, "/v1/approvals", caller.Approve, e.getApprovals},
		{http.MethodGet, "/v1/approvals/events", caller.Approve, e.getApprovalEvents},
		{http.MethodGet, "/v1/approvals/{id}", caller.Approve, e.getApproval},
		{http.MethodPost, "/v1/approvals/{id}/approve", caller.Approve, e.decide(api.ApprovalApproved)},
		{http.MethodPost, "/v1/approvals/{id}/refuse", caller.Approve, e.decide(api.ApprovalRefused)},
		{http.MethodPost, "/v1/approvals/{id}/withdraw", caller.Approve, e.decide(api.ApprovalWithdrawn)},
		{http.MethodPost, "/v1/tokens", caller.Operate, e.postToken},
		{http.MethodGet, "/v1/tokens", caller.Operate, e.getTokens},
		{http.MethodDelete, "/v1/tokens/{id}", caller.Operate, e.deleteToken},
		{http.MethodPost, "/v1/boundary/check", caller.Operate | caller.Service, e.postBoundaryCheck},
		{http.MethodGet, "/healthz", 0, e.getHealth},
		{http.MethodGet, "/readyz", 0, e.getReadiness},
		{http.MethodGet, "/openapi.json", 0, e.getOpenAPI},
	}
}

// Handler serves the API. Here alone it is decided who may make which call.
func (e *Executor) Handler() http.Handler {
	mux := http.NewServeMux()
	routes := map[string]route{}
	for _, r := range e.routes() {
		pattern := r.method + " " + r.path
		mux.HandleFunc(pattern, func(w http.ResponseWriter, req *http.Request) {
			r.handle(w, req, caller.Of(req.Context()))
		})
		routes[pattern] = r
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.Header().Set("Cache-Control", "no-store")
		extend(w)
		_, pattern := mux.Handler(r)
		if found := routes[pattern]; found.needs != 0 || pattern == "" {
			admitted, leave, problem := e.admit(r, found)
			if problem != nil {
				writeProblem(w, problem)
				return
			}
			defer leave()
			r = admitted
		}
		if pattern == "" {
			refuseRoute(mux, w, r)
			return
		}
		mux.ServeHTTP(w, r)
	})
}

// refuseRoute says in our words what the mux found wrong.
func refuseRoute(mux http.Handler, w http.ResponseWriter, r *http.Request) {
	found := &refusal{header: http.Header{}}
	mux.ServeHTTP(found, r)
	if found.status != http.StatusMethodNotAllowed {
		writeProblem(w, notFound("there is no such route; /openapi.json lists them"))
		return
	}
	allow := found.header.Get("Allow")
	w.Header().Set("Allow", allow)
	writeProblem(w, api.NewProblem(http.StatusMethodNotAllowed, api.CodeInvalidRequest, fmt.Sprintf("%s is not possible here; %s is", r.Method, allow)))
}

// A refusal is an answer of which refuseRoute needs the status and the header alone.
type refusal struct {
	header http.Header
	status int
}

func (f *refusal) Header() http.Header         { return f.header }
func (f *refusal) Write(p []byte) (int, error) { return len(p), nil }
func (f *refusal) WriteHeader(status int)      { f.status = status }

// The bounds in time of the server. There is none on a whole request: a caller
// may wait for a run for hours.
const (
	headerTimeout   = 10 * time.Second
	bodyTimeout     = 30 * time.Second
	idleTimeout     = 2 * time.Minute
	shutdownTimeout = 12 * time.Second
	closeTimeout    = 3 * time.Second
)

// Serve serves the API on ln until ctx ends, then ends the runs under way and
// shuts the executor down.
func (e *Executor) Serve(ctx context.Context, lns ...net.Listener) error {
	srv := &http.Server{
		Handler:           e.Handler(),
		ReadHeaderTimeout: headerTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    64 << 10,
	}
	served := make(chan error, len(lns))
	for _, ln := range lns {
		go func() { served <- srv.Serve(ln) }()
	}
	var err error
	select {
	case err = <-served:
		err = fmt.Errorf("serve the API: %w", err)
	case <-ctx.Done():
	}
	// Runs first: their callers get the results, which ends the streams. The record
	// that they get them from is closed last.
	sctx, cancel := context.WithTimeout(context.Background(), shutdownTimeout)
	defer cancel()
	drained := e.Drain(sctx)
	cctx, cancelClose := context.WithTimeout(context.Background(), closeTimeout)
	defer cancelClose()
	if srv.Shutdown(cctx) != nil {
		srv.Close() // callers that do not take their answer lose it
	}
	if drained != nil { // what still runs needs it
		return errors.Join(err, drained)
	}
	return errors.Join(err, e.Close())
}
