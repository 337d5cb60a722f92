package policy

import (
	"encoding/json"
	"fmt"
	"math"
	"time"

	"sallyport/executor/api"
)

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
	for _, name := range out.Secrets {
		r.out.Given = append(r.out.Given, r.secrets[name])
	}
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
	if r.out.Unapproved = r.unapproved(); r.out.Unapproved != nil {
		for _, name := range r.names {
			r.out.Definitions = append(r.out.Definitions, r.define(name))
		}
	}
	out.ProfilesDigest = r.Profiles.Digest()
	text, _ := json.Marshal(out) // of strings and numbers: it cannot fail
	out.Digest = digest(text)
	out.Narrowings = r.narrowings()
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
			// Which secrets a profile has for other tenants is not for this one to know.
			if v == nil || v.LessOrEqual(r.met[d]) || s.by == "profile" && Dimension(d) == Secrets {
				continue
			}
			for _, by := range r.sources {
				w := by.bounds[d]
				set, names := v.(Set)
				choice := by.by == "document" || by.by == "task" || by.by == "installation" && set.all
				if w == nil || v.LessOrEqual(w) || names && choice {
					continue
				}
				told = append(told, r.narrowing(Dimension(d), s, by, v, v.Meet(w)))
				break
			}
		}
	}
	return told
}

func (r *resolution) narrowing(d Dimension, of, by source, from, to Value) api.Narrowing {
	n := api.Narrowing{Field: d.String(), Of: of.by, From: from.String(), To: to.String(), By: by.by}
	n.Rule, n.File, n.Line = by.rule(d)
	n.Reason = fmt.Sprintf("%s has %s; %s allows %s at most (%s)", of.who, limited(from), by.who, limited(r.told(by, d)), at(n.Rule, n.File, n.Line))
	return n
}
