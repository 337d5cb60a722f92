package policy

import (
	"fmt"
	"slices"
)

// What makes a profile need an approval, unless it says by itself whether it does: the
// types of task that execute commands, and those that reach MCP servers of others.
var (
	commandTasks  = []string{"run.shell", "run.script", "run.container", "command", "tenant.code", "release.build", "release.package"}
	externalTasks = []string{"mcp.server", "call.mcp"}
)

// reviewed is a profile as a source. One that does not say whether somebody has to approve
// it needs that for what it allows.
func (r *resolution) reviewed(p *ceiling) source {
	s := r.ceiling("profile", p)
	if s.bounds[Approval] != nil {
		return s
	}
	of, why := r.risk(p)
	if why == "" {
		return s
	}
	s.bounds[Approval] = Reviewed
	told := s.rule
	s.rule = func(d Dimension) (rule, file string, line int) {
		if d == Approval {
			d = of
		}
		return told(d)
	}
	s.why = why
	return s
}

// risk is what of a profile asks for an approval, and why; empty where nothing does.
func (r *resolution) risk(p *ceiling) (of Dimension, why string) {
	tasks, egress, secrets := p.bounds[Tasks].(Set), p.bounds[Egress].(Set), p.bounds[Secrets].(Set)
	open := func(name string) bool { return !slices.Contains(r.Bounded, name) }
	switch {
	case slices.ContainsFunc(commandTasks, tasks.Has):
		return Tasks, "it lets tasks execute commands"
	case slices.ContainsFunc(externalTasks, tasks.Has):
		return Tasks, "it lets tasks use external MCP servers"
	case secrets.all || len(secrets.names) > 0:
		return Secrets, "it gives tasks secrets"
	case egress.all || slices.ContainsFunc(egress.names, open):
		return Egress, "it has a policy that allows any host"
	}
	return 0, ""
}

// unapproved says by which rule somebody has to approve first, or nil.
func (r *resolution) unapproved() *Denial {
	var first *Denial
	for _, s := range r.sources {
		review, ok := s.bounds[Approval].(Review)
		if !ok || review == Unreviewed || first != nil && review != EachReviewed {
			continue
		}
		den := &Denial{By: s.by}
		den.Rule, den.File, den.Line = s.rule(Approval)
		den.Detail = fmt.Sprintf("%s requires an approval (%s)", s.who, at(den.Rule, den.File, den.Line))
		if s.why != "" {
			den.Detail = fmt.Sprintf("%s requires an approval, for %s (%s)", s.who, s.why, at(den.Rule, den.File, den.Line))
		}
		first = den
	}
	return first
}

// A Definition is all that decides what runs under a profile may do at most, but for what
// others narrow of it.
type Definition struct {
	Name      string            `json:"name"`
	Bounds    map[string]string `json:"bounds"`
	Templates map[string]string `json:"templates"` // image, tier and agent of each
	Providers map[string]string `json:"providers"` // the backend of each
	Egress    map[string]string `json:"egress"`    // the digest of each policy
	GitHub    map[string]string `json:"github"`    // the permissions of each GitHub profile
	Secrets   map[string]string `json:"secrets"`   // where a task finds each
}

// define is the definition of a profile, with what it refers to.
func (r *resolution) define(name string) Definition {
	p := r.profiles[name]
	d := Definition{Name: name, Bounds: map[string]string{}, Templates: map[string]string{}, Providers: map[string]string{}, Egress: map[string]string{}, GitHub: map[string]string{}, Secrets: map[string]string{}}
	has := func(of Dimension, name string) bool { return p.bounds[of] == nil || p.bounds[of].(Set).Has(name) }
	for dim, v := range p.bounds {
		if v != nil && Dimension(dim) != Approval {
			d.Bounds[Dimension(dim).String()] = v.String()
		}
	}
	for name, t := range r.templates {
		if has(Templates, name) {
			d.Templates[name] = fmt.Sprintf("image=%s tier=%s agent=%s", t.image, t.tier, t.agent)
		}
	}
	for name, provider := range r.providers {
		if has(Providers, name) {
			d.Providers[name] = provider.backend
		}
	}
	for name, digest := range r.Egress {
		if has(Egress, name) {
			d.Egress[name] = digest
		}
	}
	for name, s := range r.secrets {
		if has(Secrets, name) {
			d.Secrets[name] = fmt.Sprintf("variable=%s file=%t", s.Variable, s.File)
		}
	}
	for name, permissions := range r.Permissions {
		if has(GitHub, name) {
			d.GitHub[name] = permissions
		}
	}
	return d
}
