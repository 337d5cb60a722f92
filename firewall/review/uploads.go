package review

import (
	"iter"
	"strings"

	"sallyport/firewall"
	"sallyport/firewall/hosts"
)

// An Upload is a way that a policy leaves to a known place which takes uploads from
// anyone.
type Upload struct {
	Host     string // the name that is reached, with a dot for any name below it
	What     string // the place is
	Decision firewall.Decision
}

// Uploads are the ways that a policy leaves for TLS to the known places which take
// uploads from anyone: package registries, drop sites, and suffixes under which anybody
// gets a host. Of each place it has the first name that is reached.
func Uploads(policy *firewall.Policy) iter.Seq[Upload] {
	return func(yield func(Upload) bool) {
		for _, list := range []*hosts.List{hosts.Registries, hosts.DropSites, hosts.UserContent} {
			for row := range list.All() {
				reached := reachedOf
				if list == hosts.UserContent {
					reached = reachedUnder
				}
				if host, d := reached(policy, row.Host); d.Allowed() && !yield(Upload{host, row.What, d}) {
					return
				}
			}
		}
	}
}

// reachedUnder finds out whether a policy lets TLS through to any name under a suffix.
// A name there that an entry gives whole is probably the operator's own.
func reachedUnder(policy *firewall.Policy, suffix string) (string, firewall.Decision) {
	name, err := firewall.ParseName(suffix)
	if err != nil {
		return "", firewall.Decision{}
	}
	return "." + suffix, policy.DecideSubdomains(name, firewall.DefaultPort)
}

// reachedOf finds out whether a policy lets TLS through to a host or to names under it.
func reachedOf(policy *firewall.Policy, host string) (string, firewall.Decision) {
	candidates := []string{host}
	for _, a := range policy.Allowed() {
		if under := strings.TrimPrefix(a.Host, "."); strings.HasSuffix(under, "."+host) {
			candidates = append(candidates, under)
		}
	}
	for _, candidate := range candidates {
		name, err := firewall.ParseName(candidate)
		if err != nil {
			continue
		}
		if d := policy.Decide(name, firewall.DefaultPort); d.Allowed() {
			return candidate, d
		}
	}
	return "", firewall.Decision{}
}
