package dispatch

import (
	"fmt"
	"maps"
	"net/http"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"sallyport/executor/agent"
	"sallyport/executor/api"
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

// When to try again: places come free with each run that ends, the others as the day
// moves on and old executions are removed.
const (
	waitForPlace = 5 * time.Second
	waitForDay   = 15 * time.Minute
)

const day = 24 * time.Hour

// quotaExceeded is the problem of a tenant that has taken what it may.
func quotaExceeded(quota, of string, limit, used any, wait time.Duration) *api.Problem {
	p := api.NewProblem(http.StatusTooManyRequests, api.CodeQuota, fmt.Sprintf("the tenant's quota %s is used up: %v of %v %s; try again later", quota, used, limit, of))
	p.Retryable = true
	p.Details = map[string]any{"quota": quota, "limit": limit, "used": used, "retryAfterMs": wait.Milliseconds()}
	return p
}

// afford holds a plan to its tenant's quotas of bytes and money. What is left of the day
// is the most that its run may cost, whatever those cost that run beside it.
func (d *Dispatcher) afford(p *plan.Plan, run string) *api.Problem {
	tenant := p.Caller.Tenant
	quotas := d.cfg.Profiles.Profiles().Share(tenant).Quotas
	if quotas.Stored != policy.Unbounded {
		used, err := d.store.Used(tenant)
		if err != nil {
			return d.unrecorded(err)
		}
		if used >= quotas.Stored {
			return quotaExceeded("stored", "bytes that are kept of its runs", quotas.Stored, used, waitForDay)
		}
	}
	if quotas.CostPerDay == policy.Unbounded {
		return nil
	}
	limit := quotas.CostPerDay.USD()
	spent, err := d.spentToday(tenant)
	if err != nil {
		return d.unrecorded(err)
	}
	if spent >= limit {
		return quotaExceeded("costPerDay", "US dollars in 24 hours", limit, spent, waitForDay)
	}
	if left := limit - spent; p.Limits.CostUSD == 0 || left < p.Limits.CostUSD {
		p.Limits.CostUSD = left
	}
	p.Charge = func(usd float64) *api.Error { return d.charge(run, tenant, limit, usd) }
	return nil
}

// spentToday is what a tenant's runs cost in the last 24 hours, those under way among them.
func (d *Dispatcher) spentToday(tenant string) (float64, error) {
	ended, err := d.store.Spent(tenant, time.Now().Add(-day))
	return ended + d.spending.of(tenant), err
}

// charge notes what a run of a tenant's has cost, and says that it is too much.
func (d *Dispatcher) charge(run, tenant string, limit, usd float64) *api.Error {
	d.spending.add(run, tenant, usd)
	spent, err := d.spentToday(tenant)
	switch {
	case err != nil:
		return &api.Error{Code: api.CodeLost, Message: "what the tenant's runs cost could not be looked up: " + err.Error(), Retryable: true}
	case spent > limit:
		return &api.Error{
			Code: api.CodeBudget, Message: fmt.Sprintf("the tenant's runs cost $%g in 24 hours; its quota is $%g", spent, limit),
			Details: map[string]any{"costUsd": spent, "quotaUsd": limit},
		}
	}
	return nil
}

// A spending is what the runs under way have cost, in US dollars, by their identifiers.
// The store knows those that have ended.
type spending struct {
	mu   sync.Mutex // guards runs
	runs map[string]spent
}

type spent struct {
	tenant string
	usd    float64
}

func (s *spending) add(run, tenant string, usd float64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.runs == nil {
		s.runs = map[string]spent{}
	}
	s.runs[run] = spent{tenant, s.runs[run].usd + usd}
}

func (s *spending) end(run string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.runs, run)
}

func (s *spending) of(tenant string) (usd float64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, run := range s.runs {
		if run.tenant == tenant {
			usd += run.usd
		}
	}
	return usd
}
