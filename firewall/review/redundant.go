package review

import (
	"fmt"
	"slices"

	"sallyport/firewall"
	"sallyport/firewall/allowlist"
	"sallyport/internal/strictyaml"
)

// Redundant lists what stands in an allowlist and makes no difference: a host that
// other entries cover with all its ports, a removal that another takes over or
// that the policy's own list undoes, and a budget that nothing can reach. It is for
// people who keep the file; the gate does not mind.
func Redundant(file *allowlist.File) allowlist.FileErrors {
	r := &redundancies{file: file, rules: make(map[string]firewall.Rules)}
	for _, name := range file.Names() {
		policy, _ := file.Policy(name)
		r.rules[name] = policy.Rules()
	}
	r.groupHosts()
	for _, text := range file.Texts {
		r.ownHosts(text)
		r.removals(text)
		r.budgets(text)
	}
	strictyaml.Sort(r.found)
	return r.found
}

type redundancies struct {
	file  *allowlist.File
	rules map[string]firewall.Rules // by policy
	found allowlist.FileErrors
}

func (r *redundancies) report(at allowlist.Pos, field, format string, args ...any) {
	r.found = append(r.found, r.file.Finding(at, field, format, args...))
}

// groupHosts reports the hosts of a group that every policy with that group
// has from elsewhere, too.
func (r *redundancies) groupHosts() {
	for _, g := range r.file.Groups {
		users := r.users(g)
		for i, host := range g.Hosts {
			var by firewall.Decision
			for _, text := range users {
				if by = r.cover(text, host); !by.Allowed() {
					break
				}
			}
			if by.Allowed() {
				r.report(allowlist.Pos{Line: host.Line}, fmt.Sprintf("groups.%s[%d]", g.Name, i), "%s is allowed already by %s: remove it", quote(host.Written), where(by))
			}
		}
	}
}

// users are the policies that allow or remove g by its name.
func (r *redundancies) users(g *allowlist.Group) []*allowlist.PolicyText {
	var users []*allowlist.PolicyText
	for _, text := range r.file.Texts {
		if slices.ContainsFunc(slices.Concat(text.Allow, text.Remove), func(item allowlist.Item) bool { return item.Group == g.Name }) {
			users = append(users, text)
		}
	}
	return users
}

func (r *redundancies) ownHosts(text *allowlist.PolicyText) {
	for _, item := range text.Allow {
		if item.Host == nil {
			continue
		}
		if by := r.cover(text, item.Host); by.Allowed() {
			r.report(item.At, item.Field, "%s is allowed already by %s: remove it", quote(item.Host.Written), where(by))
		}
	}
}

// cover is the decision that would allow all of host under a policy without host, with
// the same private ranges; a refusal where there is none.
func (r *redundancies) cover(text *allowlist.PolicyText, host *firewall.Entry) firewall.Decision {
	if by := r.same(text, host); by.Allowed() {
		return by
	}
	policy, _ := r.file.Policy(text.Name)
	without := policy.Without(host.Scope)
	var by firewall.Decision
	for _, port := range host.Ports {
		decisions := []firewall.Decision{without.Decide(host.Name, port)}
		if host.Subdomains {
			decisions = append(decisions, without.DecideSubdomains(host.Name, port))
		}
		for _, by = range decisions {
			if !by.Allowed() || by.Via != r.route(text, host) || !slices.Equal(by.Private(), host.Private) {
				return firewall.Decision{}
			}
		}
	}
	return by
}

// route is the proxy by which a policy reaches a host that the file writes.
func (r *redundancies) route(text *allowlist.PolicyText, host *firewall.Entry) string {
	return allowlist.Route(host.Via, r.rules[text.Name].Via)
}

// same finds an earlier entry of the same scope, in a group of a policy or in what it
// extends, that has all of host. What the policy removes does not count.
func (r *redundancies) same(text *allowlist.PolicyText, host *firewall.Entry) firewall.Decision {
	removed := slices.ContainsFunc(text.Remove, func(item allowlist.Item) bool {
		return slices.ContainsFunc(r.hosts(item), func(e *firewall.Entry) bool { return e.Covers(host.Scope) })
	})
	if removed {
		return firewall.Decision{}
	}
	for _, item := range text.Allow {
		if item.Group == host.Group || item.Group == "" {
			continue
		}
		for _, have := range r.hosts(item) {
			if have.Scope == host.Scope && (host.Group == "" || have.Line < host.Line) && holds(have, host) {
				return listed(have)
			}
		}
	}
	inherited := r.rules[text.Extends].Allow[host.Scope]
	for _, port := range host.Ports {
		have := inherited[port]
		if have == nil || have.Via != r.route(text, host) || !slices.Equal(have.Private, host.Private) || have.Line == host.Line {
			return firewall.Decision{}
		}
	}
	return listed(inherited[host.Ports[0]])
}

// listed is what e decides where nothing else does.
func listed(e *firewall.Entry) firewall.Decision {
	return firewall.Decision{Verdict: firewall.Allow, Reason: firewall.ReasonListed, Rule: e.Written, Group: e.Group, Line: e.Line}
}

// holds reports whether e has the ports and the private ranges of other.
func holds(e, other *firewall.Entry) bool {
	for _, port := range other.Ports {
		if !slices.Contains(e.Ports, port) {
			return false
		}
	}
	return e.Via == other.Via && slices.Equal(e.Private, other.Private)
}

// hosts are the hosts that an item stands for.
func (r *redundancies) hosts(item allowlist.Item) []*firewall.Entry {
	if item.Host != nil {
		return []*firewall.Entry{item.Host}
	}
	for _, g := range r.file.Groups {
		if g.Name == item.Group {
			return g.Hosts
		}
	}
	return nil
}

// removals reports what a policy need not remove.
func (r *redundancies) removals(text *allowlist.PolicyText) {
	for i, item := range text.Remove {
		if item.Host == nil {
			continue
		}
		scope, written := item.Host.Scope, quote(item.Host.Written)
		for j, other := range text.Remove {
			if e := other.Host; e != nil && i != j && e.Scope != scope && e.Covers(scope) {
				r.report(item.At, item.Field, "%s goes with %s, which the policy removes on line %d: remove this entry", written, quote(e.Written), e.Line)
				break
			}
		}
		for _, other := range text.Allow {
			if e := other.Host; e != nil && e.Scope == scope {
				r.report(item.At, item.Field, "%s is allowed again by the policy's own list on line %d", written, e.Line)
			}
		}
	}
}

// where names the rule of a decision.
func where(d firewall.Decision) string {
	text := quote(d.Rule)
	if d.Group != "" {
		text += " of group " + quote(d.Group)
	}
	return fmt.Sprintf("%s on line %d", text, d.Line)
}

// quote makes a part of the file fit for a message.
func quote(s string) string { return `"` + firewall.Escape(s, 80) + `"` }
