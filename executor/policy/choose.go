package policy

import (
	"fmt"
	"slices"
)

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
// first; else the default of what is installed; else what alone a workflow instance kept.
// Nothing is taken by chance.
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
	case len(met.names) > 0 && fallback == "", len(met.names) == 1 && r.Kept != nil:
		return met.names[0], nil
	}
	s := r.narrowest(d, fallback)
	den := &Denial{By: s.by, Field: r.fieldOf(d)}
	den.Rule, den.File, den.Line = s.rule(d)
	den.Detail = fmt.Sprintf("no %s is left to take: %s has %s (%s)", nouns[d], s.who, limited(r.told(s, d)), at(den.Rule, den.File, den.Line))
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

func first(names []string) string {
	if len(names) == 0 {
		return ""
	}
	return names[0]
}
