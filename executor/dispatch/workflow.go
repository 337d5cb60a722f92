package dispatch

import (
	"encoding/json"
	"fmt"
	"net/http"

	"sallyport/executor/api"
	"sallyport/executor/caller"
	"sallyport/executor/policy"
	"sallyport/executor/redact"
	"sallyport/executor/store"
	"sallyport/gate/control"
)

// begunMeanwhile is the problem of a request that was to be the first of its workflow
// instance, and is not.
var begunMeanwhile = conflict("opts.workflow.instance", "another first run of the workflow instance was accepted in this moment; try again")

// Workflow returns what the first run of a workflow instance of the caller's was given.
func (d *Dispatcher) Workflow(by caller.Caller, definition, instance string) (api.WorkflowInstance, *api.Problem) {
	known, err := d.store.Instance(by.Tenant, definition, instance)
	if err != nil {
		return api.WorkflowInstance{}, d.unread(err)
	}
	if known == nil {
		return api.WorkflowInstance{}, api.NewProblem(http.StatusNotFound, api.CodeNotFound, "there is no such workflow instance, or it has had no run yet")
	}
	var kept struct{ Bounds json.RawMessage }
	if err := json.Unmarshal(known.Kept, &kept); err != nil {
		return api.WorkflowInstance{}, d.unread(err)
	}
	known.Bounds = kept.Bounds
	return known.WorkflowInstance, nil
}

// shown is a workflow as it may be kept and told.
func shown(w api.Workflow, r *redact.Redactor) api.Workflow {
	return api.Workflow{Definition: r.String(w.Definition), Version: r.String(w.Version), Instance: r.String(w.Instance), Task: r.String(w.Task)}
}

// kept is what the workflow instance of a run has kept: nil for none, and before its first.
func (d *Dispatcher) kept(m store.Meta) (*policy.Kept, *api.Problem) {
	w := m.Workflow
	if w == (api.Workflow{}) {
		return nil, nil
	}
	known, err := d.store.Instance(m.Tenant, w.Definition, w.Instance)
	switch {
	case err != nil:
		return nil, d.unread(err)
	case known == nil:
		return nil, nil
	case known.Version != w.Version:
		p := api.NewProblem(http.StatusForbidden, api.CodePolicyDenied, fmt.Sprintf(
			"the workflow instance began with version %q of its definition and stays there, opts.workflow.version is %q", known.Version, w.Version))
		p.Details = map[string]any{"rule": "instance.version", "field": "opts.workflow.version"}
		return nil, p
	}
	kept := new(policy.Kept)
	if err := json.Unmarshal(known.Kept, kept); err != nil {
		return nil, d.unread(fmt.Errorf("read what workflow instance %q keeps: %w", w.Instance, err))
	}
	return kept, nil
}

// first is what a workflow instance keeps whose first run a request is.
func (d *Dispatcher) first(by caller.Caller, req api.Request, health control.Health, e *api.EffectivePolicy) (*store.Instance, *api.Problem) {
	q, err := asked(req)
	if err != nil {
		return nil, misunderstood(err)
	}
	q.Tenant = by.Tenant
	in := d.installed(health)
	in.Time = 0 // as in govern
	kept, denial := d.cfg.Profiles.Profiles().Keep(q, in)
	if denial != nil {
		return nil, denial.Problem()
	}
	text, err := json.Marshal(kept)
	if err != nil {
		return nil, d.unrecorded(err)
	}
	return &store.Instance{WorkflowInstance: api.WorkflowInstance{EffectivePolicy: *e}, Kept: text}, nil
}
