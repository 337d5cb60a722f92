package executor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"slices"

	"sallyport/executor/api"
	"sallyport/executor/approval"
	"sallyport/executor/caller"
	"sallyport/executor/plan"
	"sallyport/executor/store"
)

// approvalStates are the values of the query's state.
var approvalStates = []string{api.ApprovalPending, api.ApprovalApproved, api.ApprovalRefused, api.ApprovalWithdrawn}

func (e *Executor) getApprovals(w http.ResponseWriter, r *http.Request, by caller.Caller) {
	query := r.URL.Query()
	for name, values := range query {
		if name != "state" && name != "before" || len(values) > 1 {
			writeProblem(w, badRequest(fmt.Sprintf("query parameter %.64q: known here are state and before, each at most once", name)))
			return
		}
	}
	state := query.Get("state")
	if query.Has("state") && !slices.Contains(approvalStates, state) {
		writeProblem(w, badRequest(fmt.Sprintf("state is %.64q; it must be one of %v", state, approvalStates)))
		return
	}
	list, more, err := e.Approvals().List(r.Context(), by.Tenant, state, query.Get("before"))
	if err != nil {
		writeProblem(w, e.unread(err))
		return
	}
	answer := api.ApprovalList{Approvals: append([]api.Approval{}, list...)}
	if more {
		answer.Next = list[len(list)-1].ID
	}
	writeJSON(w, http.StatusOK, answer)
}

func (e *Executor) getApproval(w http.ResponseWriter, r *http.Request, by caller.Caller) {
	a, err := e.Approvals().Get(r.Context(), by.Tenant, r.PathValue("id"))
	if err != nil {
		writeProblem(w, e.unread(err))
		return
	}
	writeJSON(w, http.StatusOK, a)
}

// unread is the problem of an approval that cannot be read.
func (e *Executor) unread(err error) *api.Problem {
	if errors.Is(err, approval.ErrUnknown) {
		return notFound(err.Error())
	}
	return e.failed("the approvals could not be read", err)
}

const decisionExample = `{"seq": 7, "comment": "reviewed"}`

// decide answers calls that take an approval to a state.
func (e *Executor) decide(to string) func(http.ResponseWriter, *http.Request, caller.Caller) {
	return func(w http.ResponseWriter, r *http.Request, by caller.Caller) {
		body, p := readBody(w, r)
		if p != nil {
			writeProblem(w, p)
			return
		}
		d, p := plan.DecodeAs[api.ApprovalDecision](body, decisionExample)
		if p == nil && d.Seq < 1 {
			p = badRequest("seq is missing: that of the approval as it was read, such as " + decisionExample)
		}
		if p != nil {
			writeProblem(w, p)
			return
		}
		a, p := e.Decide(by, r.PathValue("id"), to, d)
		if p != nil {
			writeProblem(w, p)
			return
		}
		writeJSON(w, http.StatusOK, a)
	}
}

// getApprovalEvents sends the steps of approvals with a number above "after".
func (e *Executor) getApprovalEvents(w http.ResponseWriter, r *http.Request, by caller.Caller) {
	form, after, follow, p := wantedEvents(r)
	if p != nil {
		writeProblem(w, p)
		return
	}
	send(w, r, form, func(ctx context.Context) iter.Seq2[store.Line, error] {
		return asLines(e.Approvals().Events(ctx, by.Tenant, after, follow))
	})
}

// asLines are steps as streams have them.
func asLines(events iter.Seq2[api.ApprovalEvent, error]) iter.Seq2[store.Line, error] {
	return func(yield func(store.Line, error) bool) {
		for ev, err := range events {
			var line []byte
			if err == nil {
				line, err = json.Marshal(ev)
			}
			if !yield(store.Line{Seq: ev.Seq, JSON: append(line, '\n')}, err) || err != nil {
				return
			}
		}
	}
}
