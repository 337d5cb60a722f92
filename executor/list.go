package executor

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/oklog/ulid/v2"

	"sallyport/executor/api"
	"sallyport/executor/caller"
	"sallyport/executor/store"
)

// getExecutions lists executions, newest first.
func (e *Executor) getExecutions(w http.ResponseWriter, r *http.Request, by caller.Caller) {
	want, p := readListing(r.URL.Query())
	if p != nil {
		writeProblem(w, p)
		return
	}
	page, more, p := e.List(by, want)
	if p != nil {
		writeProblem(w, p)
		return
	}
	list := api.ExecutionList{Executions: append([]api.ExecutionSummary{}, page...)}
	if more {
		list.Next = page[len(page)-1].ID
	}
	writeJSON(w, http.StatusOK, list)
}

func readListing(query url.Values) (store.Listing, *api.Problem) {
	l := store.Listing{Limit: api.DefaultListLimit}
	fields := map[string]*string{"state": &l.State, "taskId": &l.TaskID, "policy": &l.Policy, "agent": &l.Agent, "before": &l.Before}
	for name, values := range query {
		field, known := fields[name]
		switch {
		case !known && name != "limit" || len(values) > 1:
			return l, badRequest(fmt.Sprintf("query parameter %.64q: known here are state, taskId, policy, agent, before and limit, each at most once", name))
		case values[0] == "":
			return l, badRequest(name + " is empty; leave it out to see all")
		case known:
			*field = values[0]
		}
	}
	states := []string{api.StateQueued, api.StateRunning, api.StateFinished}
	if l.State != "" && !slices.Contains(states, l.State) {
		return l, badRequest(fmt.Sprintf("state is %.64q; it must be one of %s", l.State, strings.Join(states, ", ")))
	}
	if _, err := ulid.ParseStrict(strings.ToUpper(l.Before)); l.Before != "" && err != nil {
		return l, badRequest(fmt.Sprintf("before is %.64q; it must be an executionId", l.Before))
	}
	l.Before = strings.ToLower(l.Before)
	if !query.Has("limit") {
		return l, nil
	}
	n, err := strconv.Atoi(query.Get("limit"))
	if err != nil || n < 1 || n > api.ListLimit {
		return l, badRequest(fmt.Sprintf("limit is %.64q; it must be a number from 1 to %d", query.Get("limit"), api.ListLimit))
	}
	l.Limit = n
	return l, nil
}
