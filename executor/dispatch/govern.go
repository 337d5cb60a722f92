package dispatch

import (
	"maps"
	"time"

	"sallyport/executor/agent"
	"sallyport/executor/api"
	"sallyport/executor/caller"
	"sallyport/executor/plan"
	"sallyport/executor/policy"
	"sallyport/executor/store"
	"sallyport/gate/control"
)

// judge makes the plan of a request under the effective policy that its caller and its
// workflow instance get. Where it is the instance's first run, it says what that keeps.
func (d *Dispatcher) judge(by caller.Caller, req api.Request, m store.Meta, health control.Health) (*plan.Plan, *store.Instance, *api.Problem) {
	kept, problem := d.kept(m)
	if problem != nil {
		return nil, nil, problem
	}
	p, problem := d.judgeWithin(by, req, kept, health)
	if problem != nil || kept != nil || req.Opts.Workflow == nil {
		return p, nil, problem
	}
	first, problem := d.first(by, req, health, p.Effective)
	return p, first, problem
}

// judgeWithin makes the plan of a request within what its instance keeps, and finds that
// somebody has approved it, where that is needed.
func (d *Dispatcher) judgeWithin(by caller.Caller, req api.Request, kept *policy.Kept, health control.Health) (*plan.Plan, *api.Problem) {
	p, effective, problem := d.planned(by, req, kept, health)
	if problem != nil {
		return nil, problem
	}
	tiers, problem := d.approved(by, p, effective)
	if problem != nil {
		return nil, problem
	}
	tier, problem := d.bounded(p, req.Config.Tier, tiers)
	if problem != nil || tier == p.Tier.Name {
		return p, problem
	}
	approvals, before := p.Effective.Approvals, p.Tier.Name
	req.Config.Tier = tier
	if p, _, problem = d.planned(by, req, kept, health); problem != nil {
		return nil, problem
	}
	p.Effective.Approvals = approvals
	p.Effective.Narrowings = append(p.Effective.Narrowings, api.Narrowing{
		Field: policy.Tiers.String(), Of: "profile", From: before, To: tier, By: "approval", Rule: "approval.tier",
		Reason: "it was approved for the tier " + tier + " at most",
	})
	return p, nil
}

// planned makes the plan of a request that needs no approval, or has it.
func (d *Dispatcher) planned(by caller.Caller, req api.Request, kept *policy.Kept, health control.Health) (*plan.Plan, *policy.Effective, *api.Problem) {
	effective, missing, problem := d.govern(by, req, kept, health)
	service, policies := d.serviceOf(by.Tenant, health.Policies)
	if missing && len(service.Images) > 0 && len(service.Agents) > 0 && len(service.Tiers) > 0 {
		// What is not there at all, or has no name that could be, the plan refuses in its
		// own words; if it does not, the policy's refusal stands.
		if _, own := service.Judge(by, req, policies); own != nil {
			return nil, nil, own
		}
	}
	if problem != nil {
		return nil, nil, problem
	}
	service = held(service, effective)
	p, problem := service.Judge(by, within(req, effective, &service), policies)
	if problem != nil {
		return nil, nil, problem
	}
	p.Effective = &effective.EffectivePolicy
	p.Limits.CostUSD, p.Limits.Tokens = effective.CostUSD, effective.Tokens
	return p, effective, nil
}

// govern computes the effective policy of a request. With missing, its problem is about
// what the executor does not have.
func (d *Dispatcher) govern(by caller.Caller, req api.Request, kept *policy.Kept, health control.Health) (e *policy.Effective, missing bool, problem *api.Problem) {
	q, err := asked(req)
	if err != nil {
		return nil, true, misunderstood(err)
	}
	q.Tenant, q.Kept = by.Tenant, kept
	in := d.installed(health)
	in.Time = 0 // more than the executor's longest is refused, not narrowed
	e, denial := d.cfg.Profiles.Profiles().Resolve(q, in)
	if denial != nil {
		return nil, denial.By == "installation", denial.Problem()
	}
	return e, false, nil
}

// asked is what a request asks for: as a document, as the task in it, and in its own
// words. Without a document what it says as a task binds its own words as one would.
func asked(req api.Request) (policy.Query, error) {
	q := policy.Query{TaskType: "call.agent"}
	c := req.Config
	if c.Agent == agent.CommandName {
		q.TaskType = "run.shell"
	}
	task, err := policy.ReadBoth(req.Opts.Metadata, req.Opts.Security, "opts")
	if err != nil {
		return q, err
	}
	if len(req.Opts.Document) > 0 {
		q.Task = task
		if q.Document, err = policy.ReadPlace(req.Opts.Document, "opts.document"); err != nil {
			return q, err
		}
	} else {
		q.Document = task
		q.Task.TakeSecrets(task)
	}
	egress, field := c.Egress, "config.egress"
	if c.UnrestrictedEgress && egress == "" {
		egress, field = "open", "config.unrestrictedEgress"
	}
	for _, n := range []struct {
		of          policy.Dimension
		name, field string
	}{
		{policy.Egress, egress, field}, {policy.Providers, c.Backend, "config.backend"}, {policy.Providers, c.Sandbox, "config.sandbox"},
		{policy.Images, c.SandboxImage, "config.sandboxImage"}, {policy.Tiers, c.Tier, "config.tier"}, {policy.Agents, c.Agent, "config.agent"},
	} {
		if n.name == "" {
			continue
		}
		if err := q.Task.Name(n.of, n.name, n.field); err != nil {
			return q, err
		}
	}
	if c.TimeoutMS > 0 {
		if err := q.Task.Limit(policy.Time, policy.Duration(time.Duration(c.TimeoutMS)*time.Millisecond), "config.timeoutMs"); err != nil {
			return q, err
		}
	}
	return q, askedOfGitHub(&q.Task, req.Opts.GithubAccess)
}

func askedOfGitHub(a *policy.Ask, access *api.GithubAccess) error {
	if access == nil {
		return nil
	}
	const field = "opts.githubAccess"
	var names []string
	for _, repo := range append([]string{access.Repo}, access.Repositories...) {
		if repo != "" {
			names = append(names, access.Owner+"/"+repo)
		}
	}
	if err := a.Name(policy.GitHub, access.Profile, field+".profile"); err != nil {
		return err
	}
	return a.Names(policy.Repositories, names, field+".repositories")
}

// held is the service as far as an effective policy lets a run have it.
func held(s plan.Service, e *policy.Effective) plan.Service {
	allowed := e.Bounds[policy.ProviderKeys].(policy.Set)
	s.Keys = maps.Clone(s.Keys)
	maps.DeleteFunc(s.Keys, func(name string, _ bool) bool { return !allowed.Has(name) })
	for _, x := range e.Given {
		s.Secrets = append(s.Secrets, agent.Secret{Name: x.Name, Variable: x.Variable, File: x.File})
	}
	return s
}

// within is the request with what the effective policy has chosen for what it does not
// name, and with its time.
func within(req api.Request, e *policy.Effective, s *plan.Service) api.Request {
	c := &req.Config
	for to, name := range map[*string]string{&c.Egress: e.NetworkPolicy, &c.SandboxImage: e.Image, &c.Tier: e.Tier, &c.Agent: e.Agent} {
		if *to == "" {
			*to = name
		}
	}
	if c.Sandbox == "" || c.Backend != "" {
		c.Backend = e.Backend
	} else {
		c.Sandbox = e.Backend
	}
	if c.Sandbox != "" && c.Backend != "" {
		c.Sandbox = c.Backend // a provider's name stands for its backend
	}
	limit := e.TTLMS
	switch {
	case limit == 0:
	case c.TimeoutMS == 0:
		if limit < s.DefaultTimeout.Milliseconds() {
			c.TimeoutMS = limit
		}
	default:
		c.TimeoutMS = min(c.TimeoutMS, limit)
	}
	return req
}
