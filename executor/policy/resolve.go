package policy

import (
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"time"

	"sallyport/executor/api"
)

// A Query is what an effective policy is computed for.
type Query struct {
	Tenant         string // [Operator], or one of the file
	Document, Task Ask
	TaskType       string // if empty, none is asked about
	Kept           *Kept  // of the workflow instance; nil for none, or before its first run
}

// Installed is what the deployment has. Nil lists are not known, and narrow nothing:
// whoever runs a task still has to find there what the effective policy names.
type Installed struct {
	Backends              []Backend // the first is the default
	Images, Agents, Tiers []string  // the first is the default
	// Egress are the gate's policies with their digests, which may be empty; Bounded are
	// those of them that allow only hosts which they list.
	Egress        map[string]string
	Bounded       []string
	DefaultEgress string
	GitHub        []string // profiles
	// Permissions are what each of GitHub stands for, for those who approve a profile.
	Permissions map[string]string
	Time        time.Duration
}

// A Backend is what isolates.
type Backend struct {
	Name      string
	Isolation Isolation
}

// Effective is an effective policy. The zero Effective allows nothing.
type Effective struct {
	api.EffectivePolicy
	// Bounds have a value for each dimension, within those of each ceiling.
	Bounds Bounds
	// Given says how the task is given each of its Secrets.
	Given []Secret
	// Unapproved says by which rule somebody has to approve first; nil where nobody has.
	Unapproved *Denial
	// Definitions are those of the profiles that it is made of, the document's and the
	// task's, where somebody has to approve them.
	Definitions []Definition
}

// A Denial is a request that may not be met.
type Denial struct {
	By     string // as in api.Narrowing; empty where nothing of the name is there
	Field  string // of the request; empty where it said nothing
	Rule   string // such as tenants.acme.egress
	File   string // of the rule; empty where it is in none
	Line   int
	Detail string
}

func (d *Denial) Error() string { return d.Detail }

// Problem is the denial as callers get it.
func (d *Denial) Problem() *api.Problem {
	p := api.NewProblem(http.StatusForbidden, api.CodePolicyDenied, d.Detail)
	p.Details = map[string]any{"rule": d.Rule}
	for name, value := range map[string]string{"field": d.Field, "file": d.File} {
		if value != "" {
			p.Details[name] = value
		}
	}
	if d.Line > 0 {
		p.Details["line"] = d.Line
	}
	return p
}

// A source is one of those that say what may be had.
type source struct {
	by     string // as in api.Narrowing
	who    string // "the tenant acme"
	bounds Bounds
	rule   func(Dimension) (rule, file string, line int)
	why    string // it requires an approval, where it does not say so
}

// A resolution is one computation. The sources are in the order in which the product
// names them: document, task, tenant, service, profiles, installation.
type resolution struct {
	*Profiles
	Query
	Installed
	requested string
	profile   string   // the effective one
	names     []string // of all profiles
	sources   []source
	meet      func(Dimension, Value, Value) Value // Value.Meet
	met       Bounds                              // of all sources
	out       *Effective
}

// Resolve computes the effective policy, or says what in the request may not be had,
// by which rule.
func (ps *Profiles) Resolve(q Query, in Installed) (*Effective, *Denial) {
	return ps.resolution(q, in).resolve()
}

func (ps *Profiles) resolution(q Query, in Installed) *resolution {
	return &resolution{Profiles: ps, Query: q, Installed: in, meet: func(_ Dimension, a, b Value) Value { return a.Meet(b) }}
}

func (r *resolution) resolve() (*Effective, *Denial) {
	if denial := r.narrow(); denial != nil {
		return nil, denial
	}
	r.out = &Effective{Bounds: r.met}
	if denial := r.choose(); denial != nil {
		return nil, denial
	}
	r.describe()
	return r.out, nil
}

// narrow finds the widest that is within all sources.
func (r *resolution) narrow() *Denial {
	if r.Profiles == nil {
		return &Denial{Rule: wordProfiles, Detail: "there are no profiles"}
	}
	if denial := r.collect(); denial != nil {
		return denial
	}
	r.met = top
	for i, s := range r.sources {
		for d, v := range s.bounds {
			switch {
			case v == nil:
			case i == len(r.sources)-1: // an installation has no order to go by
				r.met[d] = r.meet(Dimension(d), v, r.met[d])
			default:
				r.met[d] = r.meet(Dimension(d), r.met[d], v)
			}
		}
	}
	return r.asked()
}

// collect finds the sources.
func (r *resolution) collect() *Denial {
	tenant, known := r.tenants[r.Tenant]
	switch {
	case !known && r.Tenant != Operator:
		return &Denial{Rule: wordTenants, File: r.file, Detail: fmt.Sprintf("there is no tenant %s", quote(r.Tenant))}
	case !known:
		tenant = &ceiling{who: "the operator", field: "operator"}
	}
	r.sources = []source{asSource("document", r.Document), asSource("task", r.Task), r.ceiling("tenant", tenant), r.ceiling("service", r.service)}
	document := r.Document.profile
	r.requested = cmp.Or(r.Task.profile, document)
	if k := r.Kept; k != nil {
		if document != "" && document != k.Profile {
			return &Denial{By: "instance", Field: r.Document.fields[ProfileNames], Rule: "instance." + keys[ProfileNames],
				Detail: fmt.Sprintf("the profile %s is not allowed: the workflow instance began under the profile %s, and stays there", quote(document), quote(k.Profile))}
		}
		document = k.Profile
	}
	names := slices.DeleteFunc([]string{document, r.Task.profile}, func(n string) bool { return n == "" })
	if len(names) == 0 {
		names = []string{cmp.Or(tenant.byDefault, r.byDefault)}
	}
	r.profile = names[len(names)-1]
	r.names = slices.Compact(names)
	for _, name := range r.names {
		for _, s := range r.sources[2:4] {
			if v := s.bounds[ProfileNames]; v != nil && !v.(Set).Has(name) {
				return r.denied(ProfileNames, s, name, r.fieldOf(ProfileNames))
			}
		}
		p, ok := r.profiles[name]
		if !ok {
			return &Denial{Field: r.fieldOf(ProfileNames), Rule: wordProfiles, File: r.file, Detail: fmt.Sprintf("there is no profile %s%s", quote(name), suggest(name, r.Names()))}
		}
		r.sources = append(r.sources, r.reviewed(p))
	}
	if r.Kept != nil {
		r.sources = append(r.sources, r.Kept.source())
	}
	r.sources = append(r.sources, r.installation())
	return nil
}

func asSource(by string, a Ask) source {
	return source{by: by, who: "the " + by, bounds: a.bounds, rule: func(d Dimension) (string, string, int) { return a.fields[d], "", 0 }}
}

func (r *resolution) ceiling(by string, c *ceiling) source {
	return source{by: by, who: c.who, bounds: c.bounds, rule: func(d Dimension) (string, string, int) {
		return c.field + "." + d.String(), r.file, cmp.Or(c.lines[d], c.line)
	}}
}

// installation is what is there at all.
func (r *resolution) installation() source {
	var b Bounds
	if r.Backends != nil {
		var set Set
		for _, backend := range r.Backends {
			set.add(backend.Name)
		}
		for _, name := range sortedKeys(r.providers) {
			if set.Has(r.providers[name].backend) {
				set.add(name)
			}
		}
		b[Providers] = set
	}
	for d, names := range map[Dimension][]string{Images: r.Images, Agents: r.Agents, Tiers: r.Tiers, GitHub: r.GitHub} {
		if names != nil {
			b[d] = Of(names...)
		}
	}
	if r.Egress != nil {
		b[Egress] = Of(sortedKeys(r.Egress)...)
	}
	b[Templates], b[Secrets] = Of(sortedKeys(r.templates)...), Of(sortedKeys(r.secrets)...)
	if r.Time > 0 {
		b[Time] = Duration(r.Time)
	}
	return source{by: "installation", who: "this executor", bounds: b, rule: func(d Dimension) (string, string, int) { return "installation." + d.String(), "", 0 }}
}

// fieldOf is where the request says a dimension, the task's first; "" if nowhere.
func (r *resolution) fieldOf(d Dimension) string {
	return cmp.Or(r.Task.fields[d], r.Document.fields[d])
}

// asked refuses what is asked for by name and is not to be had. A task is held to its
// document, too.
func (r *resolution) asked() *Denial {
	for i, ask := range r.sources[:2] {
		for d, v := range ask.bounds {
			for _, name := range namesOf(v) {
				for _, s := range r.sources[i+1:] {
					if i == 0 && s.by == "task" || s.bounds[d] == nil {
						continue
					}
					if !s.bounds[d].(Set).Has(name) {
						field, _, _ := ask.rule(Dimension(d))
						return r.denied(Dimension(d), s, name, field)
					}
				}
				if i == 1 && r.Document.bounds[d] != nil && !r.Document.bounds[d].(Set).Has(name) {
					return r.denied(Dimension(d), r.sources[0], name, r.Task.fields[d])
				}
			}
		}
	}
	if t := r.TaskType; t != "" && !r.met[Tasks].(Set).Has(t) && kinds[t] != onHost {
		return r.denied(Tasks, r.narrowest(Tasks, t), t, "taskType")
	}
	return nil
}

// narrowest is the first source that does not have a name.
func (r *resolution) narrowest(d Dimension, name string) source {
	for _, s := range r.sources {
		if v := s.bounds[d]; v != nil && !v.(Set).Has(name) {
			return s
		}
	}
	return r.sources[len(r.sources)-1]
}

// nouns are what a name of a dimension is called.
var nouns = [dimensions]string{
	ProfileNames: "profile", Providers: "provider", Templates: "template", Images: "image", Agents: "agent", Tiers: "tier",
	Egress: "egress policy", GitHub: "GitHub profile", Repositories: "repository", ProviderKeys: "provider key", Secrets: "secret",
	Tasks: "task type", Gateways: "gateway",
}

func (r *resolution) denied(d Dimension, s source, name, field string) *Denial {
	den := &Denial{By: s.by, Field: field}
	den.Rule, den.File, den.Line = s.rule(d)
	den.Detail = fmt.Sprintf("the %s %s is not allowed: %s has %s (%s)", nouns[d], quote(name), s.who, limited(r.told(s, d)), at(den.Rule, den.File, den.Line))
	return den
}

// told is what a tenant is told of a source's bounds: of what is installed no more than
// it may have itself.
func (r *resolution) told(s source, d Dimension) Value {
	if s.by != "installation" {
		return s.bounds[d]
	}
	return s.bounds[d].Meet(r.Ceiling(r.Tenant)[d])
}

// limited is a value that may be long, for a sentence.
func limited(v Value) string {
	s, ok := v.(Set)
	if most := 8; ok && len(s.names) > most {
		return Of(s.names[:most]...).String() + fmt.Sprintf(" and %d more", len(s.names)-most)
	}
	return v.String()
}

func at(rule, file string, line int) string {
	switch {
	case file == "":
		return rule
	case line == 0:
		return file + ": " + rule
	}
	return fmt.Sprintf("%s:%d: %s", file, line, rule)
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
