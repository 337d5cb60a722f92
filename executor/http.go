package executor

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"

	"sallyport/executor/api"
)

// A route is one operation of the API.
type route struct {
	method, path string // path as in net/http's patterns
	handle       http.HandlerFunc
	open         bool // no token is needed
}

// routes are all operations; the OpenAPI document has each of them.
func (e *Executor) routes() []route {
	return []route{
		{http.MethodPost, "/v1/executions", e.postExecution, false},
		{http.MethodGet, "/v1/executions", e.getExecutions, false},
		{http.MethodGet, "/v1/executions/{id}", e.getExecution, false},
		{http.MethodDelete, "/v1/executions/{id}", e.deleteExecution, false},
		{http.MethodGet, "/v1/executions/{id}/events", e.getEvents, false},
		{http.MethodGet, "/v1/executions/{id}/artifacts", e.getArtifacts, false},
		{http.MethodGet, "/v1/executions/{id}/artifacts/{name...}", e.getArtifact, false},
		{http.MethodGet, "/v1/capabilities", e.getCapabilities, false},
		{http.MethodPost, "/v1/boundary/check", e.postBoundaryCheck, false},
		{http.MethodGet, "/healthz", e.getHealth, true},
		{http.MethodGet, "/readyz", e.getReadiness, true},
		{http.MethodGet, "/openapi.json", e.getOpenAPI, true},
	}
}

// Handler serves the API.
func (e *Executor) Handler() http.Handler {
	mux := http.NewServeMux()
	open := map[string]bool{}
	for _, r := range e.routes() {
		pattern := r.method + " " + r.path
		mux.HandleFunc(pattern, r.handle)
		open[pattern] = r.open
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.Header().Set("Cache-Control", "no-store")
		extend(w)
		_, pattern := mux.Handler(r)
		switch {
		case !open[pattern] && !e.authorized(r):
			w.Header().Set("WWW-Authenticate", `Bearer realm="sallyport"`)
			writeProblem(w, problem(http.StatusUnauthorized, api.CodeUnauthorized, "a bearer token is required: Authorization: Bearer <token>; sallyport token prints it"))
		case pattern == "":
			refuseRoute(mux, w, r)
		default:
			mux.ServeHTTP(w, r)
		}
	})
}

func (e *Executor) authorized(r *http.Request) bool {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	return strings.EqualFold(scheme, "Bearer") && sameToken(strings.TrimSpace(token), e.cfg.Token)
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
	writeProblem(w, problem(http.StatusMethodNotAllowed, api.CodeInvalidRequest, fmt.Sprintf("%s is not possible here; %s is", r.Method, allow)))
}

// A refusal keeps of an answer what refuseRoute wants to know.
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
	drained := e.drain(sctx)
	cctx, cancelClose := context.WithTimeout(context.Background(), closeTimeout)
	defer cancelClose()
	if srv.Shutdown(cctx) != nil {
		srv.Close() // callers that do not take their answer lose it
	}
	if drained != nil { // what still runs needs it
		return errors.Join(err, drained)
	}
	return errors.Join(err, e.close())
}
