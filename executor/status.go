package executor

import (
	"fmt"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"sallyport/executor/api"
	"sallyport/executor/caller"
)

func (e *Executor) getHealth(w http.ResponseWriter, _ *http.Request, _ caller.Caller) {
	writeJSON(w, http.StatusOK, e.Health())
}

// getReadiness says whether a run could start now, and if not, why.
func (e *Executor) getReadiness(w http.ResponseWriter, _ *http.Request, _ caller.Caller) {
	ready := e.Readiness()
	status := http.StatusOK
	if !ready.Ready {
		status = http.StatusServiceUnavailable
	}
	writeJSON(w, status, ready)
}

func (e *Executor) getOpenAPI(w http.ResponseWriter, _ *http.Request, _ caller.Caller) {
	w.Header().Set("Content-Type", jsonType)
	w.Write(api.OpenAPI)
}

// postBoundaryCheck makes the attempts to get out now. Its outcome decides
// whether further runs may start.
func (e *Executor) postBoundaryCheck(w http.ResponseWriter, r *http.Request, _ caller.Caller) {
	report, wait, err := e.Proof().Ask(r.Context())
	if p := tokenEnded(r); p != nil {
		writeProblem(w, p)
		return
	}
	if wait > 0 {
		p := api.NewProblem(http.StatusTooManyRequests, api.CodeBusy, fmt.Sprintf(
			"the boundary was checked a moment ago; the next check can be asked for in %v", wait.Round(time.Second/10)))
		p.Retryable = true
		p.Details = map[string]any{"retryAfterMs": wait.Milliseconds() + 1}
		writeProblem(w, p)
		return
	}
	if err != nil {
		writeProblem(w, api.Unavailable(api.CodeStartFailed, fmt.Sprintf("the boundary could not be checked: %v", err)))
		return
	}
	writeJSON(w, http.StatusOK, report)
}

func (e *Executor) getCapabilities(w http.ResponseWriter, _ *http.Request, by caller.Caller) {
	c, p := e.Capabilities(by)
	if p != nil {
		writeProblem(w, p)
		return
	}
	writeJSON(w, http.StatusOK, c)
}

// Metrics serves /metrics in the format of Prometheus. It asks for no token and
// tells nothing of any one run; it is meant for a listener of its own.
func (e *Executor) Metrics() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(e.Dispatcher.Metrics(), promhttp.HandlerOpts{MaxRequestsInFlight: 4}))
	return mux
}
