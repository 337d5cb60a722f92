package executor

import (
	"errors"
	"net/http"

	"sallyport/executor/api"
	"sallyport/executor/caller"
	"sallyport/executor/policy"
)

// postResolve computes an effective policy. It starts nothing.
func (e *Executor) postResolve(w http.ResponseWriter, r *http.Request, by caller.Caller) {
	question(w, r, policy.DecodeResolve, func(q api.PolicyRequest) (any, *api.Problem) { return e.Resolve(by, q) })
}

// postRoute says where a task runs. It starts nothing.
func (e *Executor) postRoute(w http.ResponseWriter, r *http.Request, by caller.Caller) {
	question(w, r, policy.DecodeRoute, func(q api.RouteRequest) (any, *api.Problem) { return e.Route(r.Context(), by, q) })
}

// getWorkflow says what a workflow instance keeps.
func (e *Executor) getWorkflow(w http.ResponseWriter, r *http.Request, by caller.Caller) {
	known, p := e.Workflow(by, r.PathValue("definition"), r.PathValue("instance"))
	if p != nil {
		writeProblem(w, p)
		return
	}
	writeJSON(w, http.StatusOK, known)
}

// question answers a body that is a question.
func question[Q any](w http.ResponseWriter, r *http.Request, decode func([]byte) (Q, error), ask func(Q) (any, *api.Problem)) {
	body, p := readBody(w, r)
	if p != nil {
		writeProblem(w, p)
		return
	}
	q, err := decode(body)
	if err != nil {
		p := badRequest(err.Error())
		if wrong, ok := errors.AsType[*policy.AskError](err); ok {
			p.Details = map[string]any{"field": wrong.Field}
		}
		writeProblem(w, p)
		return
	}
	answer, p := ask(q)
	if p != nil {
		writeProblem(w, p)
		return
	}
	writeJSON(w, http.StatusOK, answer)
}
