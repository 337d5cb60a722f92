package executor

import (
	"fmt"
	"net/http"
	"strings"

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
			writeProblem(w, api.NewProblem(http.StatusUnauthorized, api.CodeUnauthorized, "a bearer token is required: Authorization: Bearer <token>; sallyport token prints it"))
		case pattern == "":
			refuseRoute(mux, w, r)
		default:
			mux.ServeHTTP(w, r)
		}
	})
}

func (e *Executor) authorized(r *http.Request) bool {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	return strings.EqualFold(scheme, "Bearer") && sameToken(strings.TrimSpace(token), e.token)
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

// A refusal keeps of an answer what refuseRoute wants to know.
type refusal struct {
	header http.Header
	status int
}

func (f *refusal) Header() http.Header         { return f.header }
func (f *refusal) Write(p []byte) (int, error) { return len(p), nil }
func (f *refusal) WriteHeader(status int)      { f.status = status }
