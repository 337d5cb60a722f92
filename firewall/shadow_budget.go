package firewall

import "fmt"

// totals are the budgets of a whole run that hold before one of its hosts.
var totals = map[int]int{budgetHostUpload: budgetUpload, budgetHostDownload: budgetDownload}

// budgets reports the budgets of p that bind nothing: one of a host that is no
// less than that of the whole run, and one of names where no entry covers
// subdomains.
func (s *shadows) budgets(p *rawPolicy) {
	policy, _ := s.policies.Policy(p.name)
	for _, v := range p.budgets {
		k := &budgetKeys[v.key]
		field := fmt.Sprintf("%s.%s.%s.%s", wordPolicies, p.name, wordBudgets, k.word)
		switch v.key {
		case budgetHostUpload, budgetHostDownload:
			total := &budgetKeys[totals[v.key]]
			if all := *total.of(&policy.budget); v.value != 0 && all != 0 && all <= v.value {
				s.report(v.at, field, "%s is never reached: the %s of the whole run, %s, comes first", showBudget(v.value, k.size), total.word, showBudget(all, total.size))
			}
		case budgetWildcardNames, budgetWildcardBytes:
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
