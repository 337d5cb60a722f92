package review

import (
	"fmt"
	"slices"
	"strings"

	"golang.org/x/net/publicsuffix"

	"sallyport/firewall"
	"sallyport/firewall/hosts"
)

// Never says why no entry can allow n: it is a name of the floor, or a suffix of a
// registry, which the file cannot hold.
func Never(n firewall.Name) (why string, never bool) {
	if n.IsZero() {
		return "is no host name, and an entry names hosts only", true
	}
	if rule, bad := n.OnFloor(); bad {
		return "can never be allowed: " + rule + " is for metadata services and internal names", true
	}
	if suffix, icann := publicsuffix.PublicSuffix(n.String()); icann && suffix == n.String() {
		return "is a public suffix, which no entry can name", true
	}
	return "", false
}

// Risks says what speaks against allowing n, nothing for most names. That a name
// is a public resolver is for the policy to say: see firewall.ReasonDoH.
func Risks(n firewall.Name) []string {
	var risks []string
	if site, known := hosts.DropSites.Find(n.String()); known {
		risks = append(risks, site.What)
	}
	published, known := hosts.UserContent.Find(n.String())
	switch suffix, icann := publicsuffix.PublicSuffix(n.String()); {
	case known:
		risks = append(risks, "anybody can get a host under ."+published.Host+": "+published.What)
	case suffix == n.String():
		risks = append(risks, "a public suffix, under which anybody can register")
	case !icann && strings.Contains(suffix, "."):
		risks = append(risks, "anybody can get a host under ."+suffix)
	}
	return risks
}

// RisksUnder says what speaks against allowing n and its ports, as far as the policy
// knows that refuses them, too.
func RisksUnder(policy *firewall.Policy, n firewall.Name, ports []uint16) []string {
	found := Risks(n)
	switch d := policy.Decide(n, firewall.DefaultPort); d.Reason {
	case firewall.ReasonDoH:
		found = append(found, d.Detail+": whoever reaches it can carry data out in queries")
	case firewall.ReasonRemoved:
		found = append(found, fmt.Sprintf("the policy removes it on purpose, on line %d", d.Line))
	}
	if slices.Contains(ports, 80) {
		found = append(found, "what goes over port 80 can be read and changed on the way")
	}
	return found
}
