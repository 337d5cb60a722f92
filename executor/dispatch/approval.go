package dispatch

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
	"unicode"

	"sallyport/executor/agent"
	"sallyport/executor/api"
	"sallyport/executor/approval"
	"sallyport/executor/audit"
	"sallyport/executor/caller"
	"sallyport/executor/plan"
	"sallyport/executor/policy"
)

// The definitions of what is approved: all that decides what it may do, and nothing that
// differs from one run of it to the next.
type (
	taskDefinition struct {
		Request api.Request         `json:"request"`
		Context string              `json:"context"` // what agentContextDir held, too
		Skills  string              `json:"skillsSha256"`
		Policy  api.EffectivePolicy `json:"policy"`
	}
	workerDefinition struct {
		api.Worker
		CodeSHA256         string              `json:"codeSha256"`
		DependenciesSHA256 string              `json:"dependenciesSha256"`
		Argv               []string            `json:"argv"`
		Policy             api.EffectivePolicy `json:"policy"`
	}
)

// subjects are what has to be approved for a run, whose task is called task, the profiles
// first.
func subjects(p *plan.Plan, e *policy.Effective, task string) (list []approval.Subject, err error) {
	add := func(kind, name string, definition any) {
		s, wrong := approval.NewSubject(p.Caller.Tenant, kind, name, definition)
		list, err = append(list, s), errors.Join(err, wrong)
	}
	if e.Unapproved != nil {
		for _, of := range e.Definitions {
			add(api.KindProfile, of.Name, of)
		}
	}
	if e.Bounds[policy.Approval] == policy.EachReviewed {
		add(api.KindTask, task, taskDefinition{lasting(p.Request), p.Input.Context, digestOfSkills(p.Input.Skills), standing(e)})
	}
	if w := p.Worker; w != nil {
		add(api.KindWorker, w.Name, workerDefinition{*p.Request.Opts.Worker, w.CodeSHA256, w.DependenciesSHA256, p.Request.Config.Argv, unmeasured(standing(e))})
	}
	return list, err
}

// taskName is what a task is called.
func taskName(p *plan.Plan) string {
	if w := p.Request.Opts.Workflow; w != nil && w.Task != "" {
		return w.Definition + "/" + w.Task
	}
	return cmp.Or(p.Request.Opts.TaskID, p.Adapter.Name)
}

// lasting is a request without what only says which run it is.
func lasting(req api.Request) api.Request {
	req.Opts.TaskID = ""
	if w := req.Opts.Workflow; w != nil {
		req.Opts.Workflow = &api.Workflow{Definition: w.Definition, Version: w.Version, Task: w.Task}
	}
	if g := req.Opts.GithubAccess; g != nil {
		access := *g
		access.RunID = ""
		req.Opts.GithubAccess = &access
	}
	return req
}

// standing is a policy without what changes although nothing of it does.
func standing(e *policy.Effective) api.EffectivePolicy {
	s := e.EffectivePolicy
	s.PolicyVersion, s.ProfilesDigest, s.Digest, s.Narrowings, s.Approvals = 0, "", "", nil, nil
	return s
}

// digestOfSkills is one digest of all skills, empty without any.
func digestOfSkills(skills []agent.Skill) string {
	if len(skills) == 0 {
		return ""
	}
	text, _ := json.Marshal(skills) // of names and bytes: it cannot fail
	return digestOf(text)
}

// unmeasured is a policy without what bounds how much: that of a worker is for its tier and
// its profile to say, and no request gets more by asking for less.
func unmeasured(p api.EffectivePolicy) api.EffectivePolicy {
	p.RequestedProfile, p.Tier, p.TTLMS, p.IdleTimeoutMS, p.CostUSD, p.Tokens = "", "", 0, 0, 0, 0
	return p
}

// approvalWait is when to ask again where too many approvals are pending: people decide.
const approvalWait = time.Minute

// approved finds the approvals that a run relies on, and the tiers that they bound it to. What is
// not approved becomes pending by this very request, which is refused.
func (d *Dispatcher) approved(by caller.Caller, p *plan.Plan, e *policy.Effective) (tiers []string, problem *api.Problem) {
	needed, err := subjects(p, e, d.redactorOf(p).String(taskName(p)))
	if err == nil && len(needed) == 0 {
		return nil, nil
	}
	var found []api.Approval
	if err == nil {
		found, err = d.approvals.Require(context.Background(), by.Principal, func(text []byte) ([]byte, error) {
			return d.redactorOf(p).JSON(text)
		}, needed...)
	}
	switch {
	case errors.Is(err, approval.ErrTooLong):
		return nil, api.NewProblem(http.StatusUnprocessableEntity, api.CodeInvalidRequest, err.Error())
	case errors.Is(err, approval.ErrTooMany):
		return nil, quotaExceeded("pendingApprovals", "approvals that are pending: decide on some of them", approval.MaxPending, approval.MaxPending, approvalWait)
	case err != nil:
		return nil, d.unrecorded(err)
	}
	for _, a := range found {
		if a.State != api.ApprovalApproved {
			return nil, unapproved(a, e.Unapproved)
		}
		p.Effective.Approvals = append(p.Effective.Approvals, api.ApprovalRef{ID: a.ID, Kind: a.Kind, Name: a.Name, Digest: a.Digest, Tier: a.Tier})
		if a.Tier != "" {
			tiers = append(tiers, a.Tier)
		}
	}
	return tiers, nil
}

// unapproved refuses what nobody has approved, by a rule where there is one.
func unapproved(a api.Approval, rule *policy.Denial) *api.Problem {
	if rule == nil || a.Kind == api.KindWorker {
		rule = &policy.Denial{Rule: "approval." + a.Kind, Detail: fmt.Sprintf("a %s requires an approval", a.Kind)}
	}
	p := rule.Problem()
	p.Detail = fmt.Sprintf("%s; that of this version of the %s %.64q is %s: \"sallyport approvals show %s\" tells what of it, and somebody else who may approves it",
		rule.Detail, a.Kind, a.Name, a.State, a.ID)
	a.Definition, a.History = nil, nil
	p.Details["approval"] = a
	return p
}

// bounded is the tier of a run that approvals bound to tiers: its own where it is within
// them, else the narrowest of them. One that the request asked for by name is refused
// instead.
func (d *Dispatcher) bounded(p *plan.Plan, asked string, tiers []string) (string, *api.Problem) {
	chosen := p.Tier.Name
	for _, name := range tiers {
		i := slices.IndexFunc(d.cfg.Service.Tiers, func(t plan.Tier) bool { return t.Name == name })
		j := slices.IndexFunc(d.cfg.Service.Tiers, func(t plan.Tier) bool { return t.Name == chosen })
		switch {
		case i < 0:
			return "", tierDenied(fmt.Sprintf("it was approved for the tier %q, which there is no longer", name))
		case d.cfg.Service.Tiers[j].Limits.Within(d.cfg.Service.Tiers[i].Limits):
		case asked != "":
			return "", tierDenied(fmt.Sprintf("it was approved for the tier %s at most; the request names %s", name, asked))
		default:
			chosen = name
		}
	}
	return chosen, nil
}

func tierDenied(detail string) *api.Problem {
	p := api.NewProblem(http.StatusForbidden, api.CodePolicyDenied, detail)
	p.Details = map[string]any{"rule": "approval.tier", "field": "config.tier"}
	return p
}

// stillApproved says why a run may start no longer, or nil.
func (d *Dispatcher) stillApproved(ctx context.Context, p *plan.Plan) *api.Error {
	if p.Effective == nil {
		return nil
	}
	if err := d.approvals.Standing(ctx, p.Effective.Approvals); err != nil {
		return &api.Error{Code: api.CodePolicyDenied, Message: err.Error()}
	}
	return nil
}

// signDecision puts a decision into the audit log.
func (a *auditor) signDecision(ev api.ApprovalEvent) error {
	_, err := a.log.AppendDecision(audit.Decision{
		Approval: ev.ApprovalID, Seq: ev.Seq, Tenant: ev.Tenant, Kind: ev.Kind, Name: ev.Name, Digest: ev.Digest, State: ev.Type,
		Principal: ev.Principal, PrincipalTenant: ev.PrincipalTenant, Time: ev.Time, Comment: ev.Comment, Tier: ev.Tier,
	})
	return err
}

// Approvals are those of all tenants; see Decide for what is decided about them.
func (d *Dispatcher) Approvals() *approval.Keeper { return d.approvals }

// maxComment is the longest comment of a decision, in bytes.
const maxComment = 1024

// Decide takes an approval of the tenant that by is at work for to a state. A run that relies on one that is approved
// no longer is ended.
func (d *Dispatcher) Decide(by caller.Caller, id, to string, decision api.ApprovalDecision) (api.Approval, *api.Problem) {
	var refused *api.Problem
	wrong := func(field, detail string) {
		refused = api.NewProblem(http.StatusUnprocessableEntity, api.CodeInvalidRequest, detail)
		refused.Details = map[string]any{"field": field}
	}
	known := slices.ContainsFunc(d.cfg.Service.Tiers, func(t plan.Tier) bool { return t.Name == decision.Tier })
	switch {
	case decision.Tier != "" && to != api.ApprovalApproved:
		wrong("tier", "a tier is assigned where something is approved, and nowhere else")
	case decision.Tier != "" && !known:
		wrong("tier", fmt.Sprintf("there is no tier %.64q; see the capabilities", decision.Tier))
	case len(decision.Comment) > maxComment || strings.ContainsFunc(decision.Comment, func(r rune) bool { return !unicode.IsPrint(r) }):
		wrong("comment", fmt.Sprintf("a comment has at most %d bytes, all printable", maxComment))
	}
	if refused != nil {
		return api.Approval{}, refused
	}
	decision.Comment = d.runner.Redactor.String(decision.Comment)
	a, err := d.approvals.Decide(context.Background(), by, id, to, decision)
	if err != nil {
		return a, undecided(err)
	}
	if a.State != api.ApprovalApproved {
		d.endRelying(a)
	}
	return a, nil
}

// undecided is the problem of a decision that was not made.
func undecided(err error) *api.Problem {
	status, code := http.StatusConflict, api.CodeInvalidRequest
	switch {
	case errors.Is(err, approval.ErrUnknown):
		status, code = http.StatusNotFound, api.CodeNotFound
	case errors.Is(err, approval.ErrOwn):
		status, code = http.StatusForbidden, api.CodePolicyDenied
	case !errors.Is(err, approval.ErrMoved) && !errors.Is(err, approval.ErrNoChange):
		return api.Unavailable(api.CodeStartFailed, err.Error())
	}
	p := api.NewProblem(status, code, err.Error())
	if status == http.StatusForbidden {
		p.Details = map[string]any{"rule": "approval.principal"}
	}
	return p
}

// endRelying ends the runs that rely on an approval.
func (d *Dispatcher) endRelying(a api.Approval) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for id, refs := range d.relying {
		if cancel, active := d.active[id]; active && slices.ContainsFunc(refs, func(r api.ApprovalRef) bool { return r.ID == a.ID }) {
			cancel(&api.Error{Code: api.CodePolicyDenied, Message: fmt.Sprintf("the approval %s of the %s %s is %s", a.ID, a.Kind, a.Name, a.State)})
		}
	}
}
