package dispatch

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"slices"

	"sallyport/executor/api"
	"sallyport/executor/backend"
	"sallyport/executor/caller"
	"sallyport/executor/policy"
	"sallyport/firewall"
	"sallyport/gate/control"
)

// Resolve computes the effective policy of what a workflow asks for. Nobody but who
// operates the service asks for another tenant's.
func (d *Dispatcher) Resolve(by caller.Caller, r api.PolicyRequest) (api.EffectivePolicy, *api.Problem) {
	q, problem := query(by, r)
	if problem != nil {
		return api.EffectivePolicy{}, problem
	}
	e, problem := d.effective(q)
	if problem != nil {
		return api.EffectivePolicy{}, problem
	}
	return e.EffectivePolicy, nil
}

// Route says where a task runs.
func (d *Dispatcher) Route(ctx context.Context, by caller.Caller, r api.RouteRequest) (api.Route, *api.Problem) {
	call, err := policy.NewCall(r)
	if err != nil {
		return api.Route{}, misunderstood(err)
	}
	q, problem := query(by, r.PolicyRequest)
	if problem != nil {
		return api.Route{}, problem
	}
	taskType := q.TaskType
	q.TaskType = "" // one that is not approved has a route, too: denied
	e, problem := d.effective(q)
	if problem != nil {
		return api.Route{}, problem
	}
	route, err := e.Route(ctx, taskType, call, gateJudge{d.cfg.GateState})
	if err != nil {
		return api.Route{}, api.Unavailable(api.CodeGateUnavailable, err.Error())
	}
	return route, nil
}

// Knows reports whether there is such a tenant now.
func (d *Dispatcher) Knows(tenant string) bool {
	return tenant == policy.Operator || slices.Contains(d.cfg.Profiles.Profiles().Tenants(), tenant)
}

// query reads what a caller asks about.
func query(by caller.Caller, r api.PolicyRequest) (policy.Query, *api.Problem) {
	tenant := by.Tenant
	if r.Tenant != "" && r.Tenant != tenant {
		if !by.May(caller.Service) {
			return policy.Query{}, api.NewProblem(http.StatusNotFound, api.CodeNotFound, "there is no such tenant")
		}
		tenant = r.Tenant
	}
	q, err := policy.NewQuery(tenant, r)
	if err != nil {
		return policy.Query{}, misunderstood(err)
	}
	return q, nil
}

func (d *Dispatcher) effective(q policy.Query) (*policy.Effective, *api.Problem) {
	health, problem := d.gateHealth()
	if problem != nil {
		return nil, problem
	}
	e, denial := d.cfg.Profiles.Profiles().Resolve(q, d.installed(health))
	if denial != nil {
		return nil, denial.Problem()
	}
	return e, nil
}

// misunderstood is the problem of a wish that cannot be read.
func misunderstood(err error) *api.Problem {
	p := api.NewProblem(http.StatusBadRequest, api.CodeInvalidRequest, err.Error())
	if ask, ok := errors.AsType[*policy.AskError](err); ok {
		p.Details = map[string]any{"field": ask.Field}
	}
	return p
}

// installed is what policies are computed for.
func (d *Dispatcher) installed(health control.Health) policy.Installed {
	s := &d.cfg.Service
	in := policy.Installed{
		Images: s.Images, Agents: s.AgentNames(), Egress: map[string]string{}, Bounded: health.Bounded, DefaultEgress: "strict", Time: s.MaxTimeout,
		GitHub: []string{},
	}
	for _, b := range d.backends.All() {
		in.Backends = append(in.Backends, policy.Backend{Name: b.Name, Isolation: isolations[b.Strength]})
	}
	for _, t := range s.Tiers {
		in.Tiers = append(in.Tiers, t.Name)
	}
	for _, name := range s.Offered(health.Policies) {
		in.Egress[name] = health.Digests[name]
	}
	if s.GitHub != nil {
		in.GitHub, in.Permissions = s.GitHub.Profiles.Names(), map[string]string{}
		for _, name := range in.GitHub {
			p, _ := s.GitHub.Profiles.Get(name)
			in.Permissions[name] = fmt.Sprintf("%v key=%t", p.Permissions, p.AllowMcpAppAuth && s.GitHub.AllowKey)
		}
	}
	return in
}

var isolations = map[backend.Strength]policy.Isolation{
	backend.Process: policy.Process, backend.Container: policy.Container, backend.UserKernel: policy.UserKernel, backend.Machine: policy.Machine,
}

// A gateJudge has the gate judge destinations, by what it has in force.
type gateJudge struct{ gate GateState }

func (g gateJudge) Judge(ctx context.Context, name, host string, port uint16, addrs []netip.Addr) (api.Destination, error) {
	ctx, cancel := context.WithTimeout(ctx, healthTimeout)
	defer cancel()
	j, err := g.gate.Judge(ctx, control.Question{Policy: name, Host: host, Port: port, Addresses: addrs})
	if err != nil {
		return api.Destination{}, fmt.Errorf("ask the gate: %w", err)
	}
	return policy.Judged(host, port, addrs, firewall.Decision{Verdict: j.Verdict, Reason: j.Reason, Rule: j.Rule, Group: j.Group, Line: j.Line, Detail: j.Detail}, j.Refusals), nil
}
