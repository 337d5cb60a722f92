package main

import (
	"iter"
	"strings"

	"sallyport/firewall"
	"sallyport/firewall/hosts"
)

// An upload is a known place that takes uploads from anyone.
type upload struct {
	host, what string
	// suffix says that not host but what is under it belongs to anybody: a name there
	// that an entry gives whole is probably the operator's own.
	suffix bool
}

// uploads are all that are known: the registries, and what the firewall and the
// patches to allowlists know of such hosts.
func uploads() iter.Seq[upload] {
	return func(yield func(upload) bool) {
		for _, list := range []*hosts.List{hosts.Registries, hosts.DropSites, hosts.UserContent} {
			for r := range list.All() {
				if !yield(upload{r.Host, r.What, list == hosts.UserContent}) {
					return
				}
			}
		}
	}
}

// reached finds out whether a policy lets TLS through to an upload's host, to names
// under it or, for a suffix, to any name under it; and gives the first such name.
func reached(policy *firewall.Policy, u upload) (string, firewall.Decision) {
	if u.suffix {
		if name, err := firewall.ParseName(u.host); err == nil {
			if d := policy.DecideSubdomains(name, firewall.DefaultPort); d.Allowed() {
				return "." + u.host, d
			}
		}
		return "", firewall.Decision{}
	}
	candidates := []string{u.host}
	for _, a := range policy.Allowed() {
		if under := strings.TrimPrefix(a.Host, "."); strings.HasSuffix(under, "."+u.host) {
			candidates = append(candidates, under)
		}
	}
	for _, candidate := range candidates {
		if d := decide(policy, candidate); d.Allowed() {
			return candidate, d
		}
	}
	return "", firewall.Decision{}
}

func decide(policy *firewall.Policy, host string) firewall.Decision {
	name, err := firewall.ParseName(host)
	if err != nil {
		return firewall.Decision{}
	}
	return policy.Decide(name, firewall.DefaultPort)
}
