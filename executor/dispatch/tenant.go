package dispatch

import (
	"maps"
	"path/filepath"
	"slices"

	"sallyport/executor/agent"
	"sallyport/executor/plan"
	"sallyport/executor/policy"
	"sallyport/executor/tree"
)

// serviceOf is the service as a tenant sees it: with its own directories of the host, and
// of what has names with those that its ceiling lets it have, so that no list and no
// refusal tells it of what others have. policies are the gate's.
func (d *Dispatcher) serviceOf(tenant string, policies []string) (plan.Service, []string) {
	s := d.service()
	if tenant == policy.Operator {
		return s, policies
	}
	profiles := d.cfg.Profiles.Profiles()
	s.Roots = d.rootsOf(tenant, profiles)
	ceiling := profiles.Ceiling(tenant)
	s.Images = visible(ceiling, policy.Images, s.Images, func(n string) string { return n })
	s.Agents = visible(ceiling, policy.Agents, s.Agents, func(a agent.Adapter) string { return a.Name })
	s.Tiers = visible(ceiling, policy.Tiers, s.Tiers, func(t plan.Tier) string { return t.Name })
	s.Keys = maps.Clone(s.Keys)
	maps.DeleteFunc(s.Keys, func(name string, _ bool) bool { return !ceiling[policy.ProviderKeys].(policy.Set).Has(name) })
	if s.GitHub != nil {
		offered := *s.GitHub
		offered.Offered = visible(ceiling, policy.GitHub, offered.Profiles.Names(), func(n string) string { return n })
		s.GitHub = &offered
	}
	return s, visible(ceiling, policy.Egress, policies, func(n string) string { return n })
}

// visible are those of a list whose names a ceiling has.
func visible[T any](ceiling policy.Bounds, of policy.Dimension, list []T, name func(T) string) []T {
	names := ceiling[of].(policy.Set)
	seen := []T{}
	for _, v := range list {
		if names.Has(name(v)) {
			seen = append(seen, v)
		}
	}
	return seen
}

// rootsOf are the directories under which a tenant's requests may name paths, without
// symbolic links: those of the file, as far as they lie under a root of the service and,
// wherever links lead, in no other tenant's.
func (d *Dispatcher) rootsOf(tenant string, profiles *policy.Profiles) []string {
	resolved := func(tenant string) (dirs []string) {
		for _, root := range profiles.Share(tenant).Roots {
			if dir, err := filepath.EvalSymlinks(root); err == nil {
				dirs = append(dirs, dir)
			}
		}
		return dirs
	}
	own := slices.DeleteFunc(resolved(tenant), func(dir string) bool { return d.cfg.Service.RootOf(dir) == "" })
	for _, other := range profiles.Tenants() {
		if len(own) == 0 || other == tenant {
			continue
		}
		for _, theirs := range resolved(other) {
			own = slices.DeleteFunc(own, func(dir string) bool { return tree.Overlap(dir, theirs) })
		}
	}
	return own
}
