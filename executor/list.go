package executor

import (
	"cmp"
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
	"sallyport/firewall"
)

// A listing is what a caller wants to see of the executions. An empty string
// wants all.
type listing struct {
	state, taskID, policy, agent string
	// before is the identifier of the execution before which the list begins. The
	// identifiers are ordered by time, so it need not exist any more.
	before string
	limit  int
}

// getExecutions lists executions, newest first.
func (e *Executor) getExecutions(w http.ResponseWriter, r *http.Request, by caller.Caller) {
	want, p := readListing(r.URL.Query())
	if p != nil {
		writeProblem(w, p)
		return
	}
	entries, more := want.page(e.All(by))
	list := api.ExecutionList{Executions: make([]api.ExecutionSummary, 0, len(entries))}
	for _, entry := range entries {
		list.Executions = append(list.Executions, summary(entry))
	}
	if more {
		list.Next = entries[len(entries)-1].Meta.ID
	}
	writeJSON(w, http.StatusOK, list)
}

func readListing(query url.Values) (listing, *api.Problem) {
	l := listing{limit: api.DefaultListLimit}
	fields := map[string]*string{"state": &l.state, "taskId": &l.taskID, "policy": &l.policy, "agent": &l.agent, "before": &l.before}
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
	if l.state != "" && !slices.Contains(states, l.state) {
		return l, badRequest(fmt.Sprintf("state is %.64q; it must be one of %s", l.state, strings.Join(states, ", ")))
	}
	if _, err := ulid.ParseStrict(strings.ToUpper(l.before)); l.before != "" && err != nil {
		return l, badRequest(fmt.Sprintf("before is %.64q; it must be an executionId", l.before))
	}
	l.before = strings.ToLower(l.before)
	if !query.Has("limit") {
		return l, nil
	}
	n, err := strconv.Atoi(query.Get("limit"))
	if err != nil || n < 1 || n > api.ListLimit {
		return l, badRequest(fmt.Sprintf("limit is %.64q; it must be a number from 1 to %d", query.Get("limit"), api.ListLimit))
	}
	l.limit = n
	return l, nil
}

// page picks what the list shows of all, and says whether there is more behind it.
func (l listing) page(all []*store.Entry) (page []*store.Entry, more bool) {
	slices.SortFunc(all, func(a, b *store.Entry) int { return cmp.Compare(b.Meta.ID, a.Meta.ID) })
	for _, entry := range all {
		switch {
		case !l.wants(entry):
		case len(page) == l.limit:
			return page, true
		default:
			page = append(page, entry)
		}
	}
	return page, false
}

func (l listing) wants(entry *store.Entry) bool {
	matches := func(want, is string) bool { return want == "" || want == is }
	m := &entry.Meta
	return (l.before == "" || m.ID < l.before) && matches(l.taskID, m.TaskID) &&
		matches(l.policy, m.Policy) && matches(l.agent, m.Agent) && matches(l.state, entry.State())
}

func summary(entry *store.Entry) api.ExecutionSummary {
	m := &entry.Meta
	s := api.ExecutionSummary{
		ID:         m.ID,
		State:      entry.State(),
		AcceptedAt: m.Accepted.UTC(),
		TaskID:     m.TaskID,
		Agent:      m.Agent,
		Policy:     m.Policy,
		Model:      m.Model,
	}
	if s.State == api.StateFinished {
		s.Outcome = outcome(entry)
	}
	return s
}

// outcome is a finished execution's result in short. One whose record cannot be
// read is lost, as its own route says, too.
func outcome(entry *store.Entry) *api.Outcome {
	res, err := entry.Result()
	if err != nil {
		return &api.Outcome{Code: api.CodeLost}
	}
	o := &api.Outcome{Success: res.Success, StopReason: res.StopReason, DurationMS: res.DurationMS, CostUSD: res.CostUSD}
	if res.Error != nil {
		o.Code = res.Error.Code
	}
	refused := map[string]bool{}
	for _, h := range res.Receipt.Hosts {
		if h.Verdict != firewall.Allow {
			refused[h.Host] = true
		}
	}
	o.Refused = len(refused)
	return o
}
