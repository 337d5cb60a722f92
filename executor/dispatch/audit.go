package dispatch

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"iter"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"sallyport/executor/agent"
	"sallyport/executor/api"
	"sallyport/executor/audit"
	"sallyport/executor/plan"
	"sallyport/executor/redact"
	"sallyport/executor/store"
)

// An auditor makes the audit record of every execution and appends it to the log.
type auditor struct {
	log    *audit.Log
	errors *slog.Logger
	ended  func(audit.Record, iter.Seq[api.Event]) // Config.Ended; may be nil

	mu      sync.Mutex // guards waiting
	waiting []audit.Record
}

// perTask is the mode of a sandbox that has one task.
const perTask = "per-task"

// draft is what is known of a run's record before it starts.
func draft(p *plan.Plan, m store.Meta, isolation api.Isolation, redactor *redact.Redactor) audit.Record {
	in := p.Input
	if p.GitHub != nil { // its names; the values come with the token
		in.GitHub = &agent.GitHub{}
	}
	job := p.Adapter.Command(in)
	r := audit.Record{
		Execution: m.ID, Tenant: m.Tenant, Principal: p.Caller.Principal,
		Workflow: workflow(m), Task: audit.Task{ID: m.TaskID, Name: m.Workflow.Task},
		Sandbox: audit.Sandbox{Provider: p.Backend, Isolation: isolation.Model, Mode: perTask, Image: p.Image, Tier: p.Tier.Name},
		Command: audit.Command{Directory: job.Dir},
		Agent:   audit.Agent{Name: m.Agent, PromptSHA256: digestOf([]byte(p.Request.Prompt)), ToolsAllowed: true},
		Network: audit.Network{Policy: m.Policy},
		Outcome: audit.Outcome{Accepted: m.Accepted},
		Events:  audit.Events{Log: "/v1/executions/" + m.ID + "/events"},
	}
	if t := p.Request.Config.Telemetry; t != nil { // what a harness says that names no workflow
		r.Workflow.Definition = cmp.Or(r.Workflow.Definition, redactor.String(t.WorkflowName))
		r.Task.Name = cmp.Or(r.Task.Name, redactor.String(t.PhaseName))
	}
	r.Agent.Provider, r.Agent.Model, _ = strings.Cut(m.Model, "/")
	if p.Input.Context != "" {
		r.Agent.ContextSHA256 = digestOf([]byte(p.Input.Context))
	}
	for _, s := range p.Input.Skills {
		r.Agent.Skills = append(r.Agent.Skills, audit.Skill{Name: redactor.String(s.Name), SHA256: s.SHA256})
	}
	if w := p.Worker; w != nil {
		r.Task.CodeSHA256, r.Task.DependenciesSHA256 = w.CodeSHA256, w.DependenciesSHA256
	}
	if p.Effective != nil {
		for _, a := range p.Effective.Approvals {
			r.Approvals = append(r.Approvals, audit.Approval(a))
		}
	}
	for _, arg := range job.Argv {
		r.Command.Argv = append(r.Command.Argv, redactor.String(arg))
	}
	for _, variable := range job.Env {
		name, _, _ := strings.Cut(variable, "=")
		r.Command.Environment = append(r.Command.Environment, name)
		ofSecret := func(s agent.Secret) bool { return s.Variable == name }
		if p.GitHub != nil && strings.HasSuffix(name, "_TOKEN") && !slices.ContainsFunc(in.Secrets, ofSecret) {
			r.Command.Secrets = append(r.Command.Secrets, name)
		}
	}
	for _, s := range in.Secrets {
		r.Command.Secrets = append(r.Command.Secrets, s.Name)
	}
	return r
}

func workflow(m store.Meta) audit.Workflow {
	w := m.Workflow
	return audit.Workflow{Definition: w.Definition, Version: w.Version, Instance: w.Instance}
}

// digestOf is the SHA-256 of data in hexadecimal.
func digestOf(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// keepDraft writes the draft down, with the proof of the boundary behind which the run is.
func keepDraft(entry *store.Entry, r audit.Record, proven *api.BoundaryReport) error {
	if proven != nil {
		report, err := json.Marshal(proven)
		if err != nil {
			return err
		}
		checked := proven.CheckedAt.UTC()
		r.Network.Boundary = audit.Boundary{Passed: proven.Passed, Checked: &checked, SHA256: digestOf(report)}
	}
	data, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return entry.KeepDraft(data)
}

// record is the record of an execution, from what is on disk of it and its result.
func record(left store.Remains, state string, res api.Result) (audit.Record, error) {
	m := left.Meta
	r := audit.Record{
		Execution: m.ID, Tenant: m.Tenant,
		Workflow: workflow(m), Task: audit.Task{ID: m.TaskID, Name: m.Workflow.Task},
		Agent:   audit.Agent{Name: m.Agent},
		Network: audit.Network{Policy: m.Policy},
		Outcome: audit.Outcome{Accepted: m.Accepted},
		Events:  audit.Events{Log: "/v1/executions/" + m.ID + "/events"},
	}
	if left.Draft != nil { // an executor of before wrote none
		if err := json.Unmarshal(left.Draft, &r); err != nil {
			return r, err
		}
	}
	var events audit.EventTree
	if left.Lines != nil {
		for line := range left.Lines {
			events.Add(line)
		}
	}
	r.Events = events.Events(r.Events.Log)
	r.Sandbox.Provider, r.Sandbox.Isolation, r.Sandbox.ID = res.Isolation.Backend, res.Isolation.Model, res.Isolation.Sandbox
	r.Sandbox.ImageDigest = res.Isolation.ImageDigest
	if p := left.Policy; p != nil {
		r.Profile = audit.Profile{Requested: p.RequestedProfile, Effective: p.EffectiveProfile, PolicyVersion: p.PolicyVersion}
		r.Sandbox.Template, r.Agent.TokenBudget = p.Template, p.Tokens
	}
	r.Agent.Session, r.Agent.OutputTokens = res.SessionID, res.OutputTokens
	r.Agent.InputTokens = res.InputTokens + res.CacheCreationInputTokens + res.CacheReadInputTokens
	for _, a := range res.Artifacts {
		r.Artifacts = append(r.Artifacts, audit.Artifact(a))
	}
	if g := res.Github; g != nil {
		r.Commit = g.Commit
		r.Tokens = []audit.TokenScope{{
			Source: g.Source, Profile: g.Profile, Owner: g.Owner, Repositories: g.Repositories,
			Permissions: g.Permissions, Downscoped: g.Downscoped, Revoked: g.Revoked,
		}}
	}
	r.Network.Digest = res.Receipt.Digest
	var err error
	if r.Network.Receipt, err = json.Marshal(res.Receipt); err != nil {
		return r, err
	}
	r.Outcome = outcome(m.Accepted, state, res)
	return r, nil
}

func outcome(accepted time.Time, state string, res api.Result) audit.Outcome {
	o := audit.Outcome{
		State: state, Success: res.Success, StopReason: res.StopReason, ExitCode: res.ExitCode,
		Accepted: accepted.UTC(), DurationMS: res.DurationMS,
		OutputBytes: int64(len(res.Output)), OutputSHA256: digestOf([]byte(res.Output)),
	}
	if res.Error != nil {
		o.Code = string(res.Error.Code)
	}
	if state == audit.StateFinished {
		ended := o.Accepted.Add(time.Duration(res.DurationMS) * time.Millisecond)
		o.Ended = &ended
	}
	return o
}

// add appends the record of an execution and notes its place in the result. A record that
// cannot be written waits: no run is accepted before it is.
func (a *auditor) add(left store.Remains, state string, res *api.Result) audit.Record {
	r, err := record(left, state, *res)
	if err != nil {
		a.errors.Error("an audit record lacks what was known when its run started", "run", left.Meta.ID, "error", err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	place, err := a.log.Append(r)
	if err != nil {
		a.errors.Error("an audit record could not be written; no run is accepted until it is", "run", left.Meta.ID, "error", err)
		a.waiting = append(a.waiting, r)
		return r
	}
	res.Audit = &api.AuditPlace{Index: place.Index, SHA256: place.SHA256}
	return r
}

// tell tells of a run that has its result.
func (a *auditor) tell(r audit.Record, entry *store.Entry) {
	if a.ended == nil {
		return
	}
	a.ended(r, func(yield func(api.Event) bool) {
		for line, err := range entry.Events(context.Background(), 0, false) {
			var ev api.Event
			if err != nil || json.Unmarshal(line.JSON, &ev) == nil && !yield(ev) {
				return
			}
		}
	})
}

// unaudited says why no run is accepted while records wait.
func unaudited(err error) error {
	return fmt.Errorf("the audit log cannot be written: %w", err)
}

// settle appends the records that wait, and says why it cannot, or nil.
func (a *auditor) settle() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	for len(a.waiting) > 0 {
		if _, err := a.log.Append(a.waiting[0]); err != nil {
			return err
		}
		a.waiting = slices.Delete(a.waiting, 0, 1)
	}
	return nil
}
