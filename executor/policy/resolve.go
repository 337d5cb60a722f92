package policy

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"math"
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
}

// Installed is what the deployment has. Nil lists are not known, and narrow nothing:
// whoever runs a task still has to find there what the effective policy names.
type Installed struct {
	Backends              []Backend // the first is the default
	Images, Agents, Tiers []string  // the first is the default
	// Egress are the gate's policies with their digests, which may be empty.
	Egress        map[string]string
	DefaultEgress string
	GitHub        []string // profiles
	Time          time.Duration
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
	// Unapproved says by which rule somebody has to approve first; nil where nobody has.
	Unapproved *Denial
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
}

// A resolution is one computation. The sources are in the order in which the product
// names them: document, task, tenant, service, profiles, installation.
type resolution struct {
	*Profiles
	Query
	Installed
	requested string
	profile   string // the effective one
	sources   []source
	meet      func(Dimension, Value, Value) Value // Value.Meet
	met       Bounds                              // of all sources
	out       *Effective
}

// Resolve computes the effective policy, or says what in the request may not be had,
// by which rule.
func (ps *Profiles) Resolve(q Query, in Installed) (*Effective, *Denial) {
	r := &resolution{Profiles: ps, Query: q, Installed: in, meet: func(_ Dimension, a, b Value) Value { return a.Meet(b) }}
	return r.resolve()
}

func (r *resolution) resolve() (*Effective, *Denial) {
	if r.Profiles == nil {
		return nil, &Denial{Rule: wordProfiles, Detail: "there are no profiles"}
	}
	if denial := r.collect(); denial != nil {
		return nil, denial
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
	if denial := r.asked(); denial != nil {
		return nil, denial
	}
	r.out = &Effective{Bounds: r.met}
	if denial := r.choose(); denial != nil {
		return nil, denial
	}
	r.describe()
	return r.out, nil
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
	names := slices.DeleteFunc([]string{r.Document.profile, r.Task.profile}, func(n string) bool { return n == "" })
	if len(names) > 0 {
		r.requested = names[len(names)-1]
	} else {
		names = []string{cmp.Or(tenant.byDefault, r.byDefault)}
	}
	r.profile = names[len(names)-1]
	for _, name := range slices.Compact(names) {
		for _, s := range r.sources[2:4] {
			if v := s.bounds[ProfileNames]; v != nil && !v.(Set).Has(name) {
				return r.denied(ProfileNames, s, name, r.fieldOf(ProfileNames))
			}
		}
		p, ok := r.profiles[name]
		if !ok {
			return &Denial{Field: r.fieldOf(ProfileNames), Rule: wordProfiles, File: r.file, Detail: fmt.Sprintf("there is no profile %s%s", quote(name), suggest(name, r.Names()))}
		}
		r.sources = append(r.sources, r.ceiling("profile", p))
	}
	r.sources = append(r.sources, r.installation())
	return nil
}

func asSource(by string, a Ask) source {
	return source{by, "the " + by, a.bounds, func(d Dimension) (string, string, int) { return a.fields[d], "", 0 }}
}

func (r *resolution) ceiling(by string, c *ceiling) source {
	return source{by, c.who, c.bounds, func(d Dimension) (string, string, int) {
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
	b[Templates] = Of(sortedKeys(r.templates)...)
	if r.Time > 0 {
		b[Time] = Duration(r.Time)
	}
	return source{"installation", "this executor", b, func(d Dimension) (string, string, int) { return "installation." + d.String(), "", 0 }}
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
	den.Detail = fmt.Sprintf("the %s %s is not allowed: %s has %s (%s)", nouns[d], quote(name), s.who, limited(s.bounds[d]), at(den.Rule, den.File, den.Line))
	return den
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

// choose takes one of each dimension that a run has one of.
func (r *resolution) choose() (denial *Denial) {
	out := &r.out.EffectivePolicy
	if out.Template = r.template(); out.Template != "" {
		r.take(Templates, out.Template)
	}
	t := r.templates[out.Template]
	if t == nil {
		t = &template{}
	}
	if denial = r.provider(); denial != nil {
		return denial
	}
	for _, c := range []struct {
		of             Dimension
		to             *string
		from, fallback string
	}{
		{Images, &out.Image, t.image, first(r.Images)},
		{Tiers, &out.Tier, t.tier, first(r.Tiers)},
		{Agents, &out.Agent, t.agent, first(r.Agents)},
		{Egress, &out.NetworkPolicy, "", r.DefaultEgress},
	} {
		if *c.to, denial = r.one(c.of, c.from, c.fallback); denial != nil {
			return denial
		}
		if *c.to != "" {
			r.take(c.of, *c.to)
		}
	}
	return nil
}

func (r *resolution) take(d Dimension, name string) { r.out.Bounds[d] = Of(name) }

// template is the one that is asked for, or else the profile's first.
func (r *resolution) template() string {
	if r.fieldOf(Templates) != "" || r.ordered(Templates) {
		return first(namesOf(r.met[Templates]))
	}
	return ""
}

// ordered reports whether the profile lists the names of a dimension, so that its first
// is the default.
func (r *resolution) ordered(d Dimension) bool {
	return slices.ContainsFunc(r.sources, func(s source) bool { return s.by == "profile" && len(namesOf(s.bounds[d])) > 0 })
}

// one takes the name that is asked for; else what the template says; else the profile's
// first; else the default of what is installed. Nothing is taken by chance.
func (r *resolution) one(d Dimension, from, fallback string) (string, *Denial) {
	met := r.met[d].(Set)
	switch field := r.fieldOf(d); {
	case field != "" && len(met.names) > 0:
		return met.names[0], nil
	case from != "" && met.Has(from):
		return from, nil
	case from != "":
		return "", r.denied(d, r.narrowest(d, from), from, r.fieldOf(Templates))
	case r.ordered(d) && len(met.names) > 0:
		return met.names[0], nil
	case met.Has(fallback) || met.all:
		return fallback, nil // which may be empty: it is not known here
	case len(met.names) > 0 && fallback == "":
		return met.names[0], nil
	}
	s := r.narrowest(d, fallback)
	den := &Denial{By: s.by, Field: r.fieldOf(d)}
	den.Rule, den.File, den.Line = s.rule(d)
	den.Detail = fmt.Sprintf("no %s is left to take: %s has %s (%s)", nouns[d], s.who, limited(s.bounds[d]), at(den.Rule, den.File, den.Line))
	if len(met.names) > 0 {
		den.Detail = fmt.Sprintf("the default %s %s is not allowed (%s); name one of %s", nouns[d], quote(fallback), at(den.Rule, den.File, den.Line), met)
	}
	return "", den
}

// provider takes one whose backend is strong enough.
func (r *resolution) provider() *Denial {
	out, need := &r.out.EffectivePolicy, r.met[Strength].(Isolation)
	fallback := ""
	if len(r.Backends) > 0 {
		fallback = r.Backends[0].Name
	}
	name, denial := r.one(Providers, "", fallback)
	if denial != nil {
		return denial
	}
	candidates := []string{name}
	if r.fieldOf(Providers) == "" {
		candidates = append(candidates, namesOf(r.met[Providers])...)
	}
	for _, candidate := range candidates {
		backend := r.backendOf(candidate)
		if backend.Isolation > need {
			continue
		}
		out.Provider, out.Backend, out.Isolation = candidate, backend.Name, backend.Isolation.String()
		r.out.Bounds[Strength] = backend.Isolation
		if candidate != "" {
			r.take(Providers, candidate)
		}
		return nil
	}
	return r.tooWeak(name, need)
}

// backendOf is the backend that a provider stands for. Where it is not known what is
// installed, it is taken to be as strong as it must be.
func (r *resolution) backendOf(provider string) Backend {
	name := provider
	if p := r.providers[provider]; p != nil {
		name = p.backend
	}
	if i := slices.IndexFunc(r.Backends, func(b Backend) bool { return b.Name == name }); i >= 0 {
		return r.Backends[i]
	}
	return Backend{Name: name, Isolation: r.met[Strength].(Isolation)}
}

func (r *resolution) tooWeak(provider string, need Isolation) *Denial {
	for _, s := range r.sources {
		if v := s.bounds[Strength]; v != nil && v.(Isolation) == need {
			den := &Denial{By: s.by, Field: r.fieldOf(Providers)}
			den.Rule, den.File, den.Line = s.rule(Strength)
			den.Detail = fmt.Sprintf("the provider %s isolates by %s: %s requires %s (%s)",
				quote(provider), r.backendOf(provider).Isolation, s.who, need, at(den.Rule, den.File, den.Line))
			return den
		}
	}
	return &Denial{Rule: Strength.String(), Detail: "no provider isolates as it must"}
}

// describe fills in the effective policy as callers see it.
func (r *resolution) describe() {
	b, out := r.out.Bounds, &r.out.EffectivePolicy
	out.RequestedProfile, out.EffectiveProfile = r.requested, r.profile
	out.SandboxMode = b[SandboxMode].String()
	out.NetworkPolicyDigest = r.Egress[out.NetworkPolicy]
	out.SecretPolicy = wordNone
	if s := r.met[Secrets].(Set); s.all || len(s.names) > 0 {
		out.SecretPolicy = "task-scoped"
	}
	given := Set{}
	if v := r.Task.bounds[Secrets]; v != nil {
		given = r.met[Secrets].(Set)
	}
	r.out.Bounds[Secrets] = given
	r.out.Bounds[ProfileNames] = Of(r.profile)
	out.Secrets = given.List()
	out.ApprovedTaskTypes = b[Tasks].(Set).List()
	out.PolicyVersion, out.Tenant = r.version, r.Tenant
	out.Github = api.GithubCeiling{Profiles: b[GitHub].(Set).List(), Repositories: b[Repositories].(Set).List()}
	out.ProviderKeys, out.Gateways = b[ProviderKeys].(Set).List(), b[Gateways].(Set).List()
	if d := b[Time].(Duration); d < math.MaxInt64 {
		out.TTLMS = time.Duration(d).Milliseconds()
	}
	if d := b[IdleTime].(Duration); d < math.MaxInt64 {
		out.IdleTimeoutMS = time.Duration(d).Milliseconds()
	}
	if c := b[CostUSD].(Cost); c < math.MaxInt64 {
		out.CostUSD = float64(c) / 1e6
	}
	if n := b[Tokens].(Count); n < math.MaxInt64 {
		out.Tokens = int64(n)
	}
	out.Approval = b[Approval].String()
	r.out.Unapproved = r.unapproved()
	out.ProfilesDigest = r.Profiles.Digest()
	text, _ := json.Marshal(out) // of strings and numbers: it cannot fail
	out.Digest = digest(text)
	out.Narrowings = r.narrowings()
}

// unapproved says by which rule somebody has to approve first, or nil.
func (r *resolution) unapproved() *Denial {
	for _, s := range r.sources {
		if s.bounds[Approval] == Reviewed {
			den := &Denial{By: s.by}
			den.Rule, den.File, den.Line = s.rule(Approval)
			den.Detail = fmt.Sprintf("%s requires an approval (%s), and there is none", s.who, at(den.Rule, den.File, den.Line))
			return den
		}
	}
	return nil
}

// narrowings say what of document, task and profile is more than what came out, and who
// narrowed it first. Which names a request takes of its profile is its own choice, and
// all are all that there are.
func (r *resolution) narrowings() (told []api.Narrowing) {
	for _, s := range r.sources {
		if s.by != "document" && s.by != "task" && s.by != "profile" {
			continue
		}
		for d, v := range s.bounds {
			if v == nil || v.LessOrEqual(r.met[d]) {
				continue
			}
			for _, by := range r.sources {
				w := by.bounds[d]
				set, names := v.(Set)
				choice := by.by == "document" || by.by == "task" || by.by == "installation" && set.all
				if w == nil || v.LessOrEqual(w) || names && choice {
					continue
				}
				told = append(told, narrowing(Dimension(d), s, by, v, v.Meet(w)))
				break
			}
		}
	}
	return told
}

func narrowing(d Dimension, of, by source, from, to Value) api.Narrowing {
	n := api.Narrowing{Field: d.String(), Of: of.by, From: from.String(), To: to.String(), By: by.by}
	n.Rule, n.File, n.Line = by.rule(d)
	n.Reason = fmt.Sprintf("%s has %s; %s allows %s at most (%s)", of.who, limited(from), by.who, limited(by.bounds[d]), at(n.Rule, n.File, n.Line))
	return n
}

func first(names []string) string {
	if len(names) == 0 {
		return ""
	}
	return names[0]
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
