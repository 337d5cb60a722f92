package review

import (
	"fmt"

	"sallyport/firewall"
	"sallyport/firewall/allowlist"
	"sallyport/firewall/budget"
)

// totals are the budgets of a whole run that hold before one of its hosts.
var totals = map[budget.Kind]budget.Kind{budget.HostUpload: budget.Upload, budget.HostDownload: budget.Download}

// budgets reports the budgets of a policy that bind nothing: one of a host that is no
// less than that of the whole run, and one of names where no entry covers
// subdomains.
func (r *redundancies) budgets(text *allowlist.PolicyText) {
	rules := r.rules[text.Name]
	for _, line := range text.Budgets {
		field := fmt.Sprintf("policies.%s.budgets.%s", text.Name, line.Kind)
		switch line.Kind {
		case budget.HostUpload, budget.HostDownload:
			total := totals[line.Kind]
			if all := rules.Budget.Get(total); line.Value != 0 && all != 0 && all <= line.Value {
				r.report(line.At, field, "%s is never reached: the %s of the whole run, %s, comes first", line.Kind.Format(line.Value), total, total.Format(all))
			}
		case budget.WildcardNames, budget.WildcardBytes:
			if line.Value != 0 && !coversSubdomains(rules) {
				r.report(line.At, field, "bounds the names below entries such as .example.com, and the policy has none")
			}
		}
	}
}

// coversSubdomains reports whether a policy allows names that no entry gives whole.
func coversSubdomains(rules firewall.Rules) bool {
	for scope := range rules.Allow {
		if scope.Subdomains {
			return true
		}
	}
	return rules.Any
}
