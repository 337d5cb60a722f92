package firewall

import (
	"fmt"

	"sallyport/firewall/budget"
)

// totals are the budgets of a whole run that hold before one of its hosts.
var totals = map[budget.Kind]budget.Kind{budget.HostUpload: budget.Upload, budget.HostDownload: budget.Download}

// budgets reports the budgets of p that bind nothing: one of a host that is no
// less than that of the whole run, and one of names where no entry covers
// subdomains.
func (s *shadows) budgets(p *rawPolicy) {
	policy, _ := s.policies.Policy(p.name)
	for _, v := range p.budgets {
		field := fmt.Sprintf("%s.%s.%s.%s", wordPolicies, p.name, wordBudgets, v.kind)
		switch v.kind {
		case budget.HostUpload, budget.HostDownload:
			total := totals[v.kind]
			if all := policy.budget.Get(total); v.value != 0 && all != 0 && all <= v.value {
				s.report(v.at, field, "%s is never reached: the %s of the whole run, %s, comes first", v.kind.Format(v.value), total, total.Format(all))
			}
		case budget.WildcardNames, budget.WildcardBytes:
			if v.value != 0 && !policy.covers() {
				s.report(v.at, field, "bounds the names below entries such as .example.com, and the policy has none")
			}
		}
	}
}

// covers reports whether any entry of p covers subdomains.
func (p *Policy) covers() bool {
	for _, nd := range p.nodes {
		if len(nd.tree) > 0 {
			return true
		}
	}
	return p.any
}
