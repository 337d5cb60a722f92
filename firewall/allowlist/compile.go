package allowlist

import (
	"maps"
	"slices"
	"strings"

	"sallyport/firewall"
)

// maxGrants bounds what all policies of a file come to together, since a short
// file can name one long group many times.
const maxGrants = 1 << 18

// compile puts the parts of the file together. It returns nil where they have faults.
func (l *loader) compile(groups []*Group, texts []*PolicyText) *firewall.Policies {
	c := &compiler{loader: l, groups: make(map[string]*Group), texts: make(map[string]*PolicyText), done: make(map[string]*draft)}
	for _, g := range groups {
		c.groups[g.Name] = g
	}
	for _, p := range texts {
		c.texts[p.Name] = p
	}
	var rules []firewall.Rules
	for _, p := range texts {
		rules = append(rules, c.draft(p, nil).rules(p.Name))
	}
	c.checkUnused(groups)
	if l.Err() != nil {
		return nil
	}
	policies, err := firewall.NewPolicies(rules)
	if err != nil { // a fault of this package
		l.Fault(Pos{Line: 1, Column: 1}, wordPolicies, "%v", err)
	}
	return policies
}

// checkUnused warns of groups that no policy names.
func (c *compiler) checkUnused(groups []*Group) {
	for _, g := range groups {
		if !g.used {
			c.warn(g.at, wordGroups+"."+show(g.Name), "no policy uses this group: name it in one, or remove it")
		}
	}
}

type compiler struct {
	*loader
	groups map[string]*Group
	texts  map[string]*PolicyText
	done   map[string]*draft
	grants int // so far, in all policies
}

// draft is what p extends and the groups it allows, less what it removes, and
// the hosts of its own list. What comes later decides for the same host and port.
func (c *compiler) draft(p *PolicyText, path []string) *draft {
	if e, ok := c.done[p.Name]; ok {
		return e
	}
	if c.grants > maxGrants {
		return newDraft()
	}
	e := c.inherited(p, append(path, p.Name))
	c.addGroups(e, p)
	for _, item := range p.Remove {
		c.remove(e, item)
	}
	for _, item := range p.Allow {
		switch {
		case item.any:
			e.any, e.anyLine = true, item.At.Line
		case item.Host != nil:
			e.add(item.Host)
		}
	}
	if p.ech != nil {
		e.ech = p.ech
	}
	if p.via != "" {
		e.via = p.via
	}
	for _, b := range p.Budgets {
		e.budget.Set(b.Kind, b.Value)
	}
	if !e.any && len(e.grants) == 0 && (len(p.Allow) > 0 || p.Extends != "") { // else it says so itself
		c.warn(p.at, wordPolicies+"."+show(p.Name), "allows nothing")
	}
	c.done[p.Name] = e
	for _, ports := range e.grants {
		c.grants += len(ports)
	}
	if c.grants > maxGrants {
		c.Fault(p.at, wordPolicies+"."+show(p.Name), "the policies up to here come to more than %d entries", maxGrants)
	}
	return e
}

// inherited is a copy of the draft of the policy that p extends.
func (c *compiler) inherited(p *PolicyText, path []string) *draft {
	if p.Extends == "" {
		return newDraft()
	}
	field := wordPolicies + "." + show(p.Name) + "." + wordExtends
	parent, ok := c.texts[p.Extends]
	switch {
	case !ok:
		c.Fault(p.extendsAt, field, "no policy is called %s%s", quote(p.Extends), suggest(p.Extends, slices.Sorted(maps.Keys(c.texts))))
		return newDraft()
	case slices.Contains(path, p.Extends):
		c.Fault(p.extendsAt, field, "goes round in a circle: %s", show(strings.Join(append(path, p.Extends), " -> ")))
		return newDraft()
	}
	return c.draft(parent, path).clone()
}

// addGroups adds the groups that p allows. Two that admit different private
// ranges for one host contradict each other.
func (c *compiler) addGroups(e *draft, p *PolicyText) {
	own := make(grants)
	for _, item := range p.Allow {
		g := c.group(item, c.Fault)
		if g == nil {
			continue
		}
		for _, host := range g.Hosts {
			for _, port := range host.Ports {
				first := own[host.Scope][port]
				switch {
				case first == nil:
					e.grants.add(host, port)
					own.add(host, port)
				case first.Via != host.Via:
					c.Fault(item.At, item.Field, "%s is reached by another way in this group (line %d) than in group %s (line %d)",
						quote(host.Written), host.Line, quote(first.Group), first.Line)
				case !slices.Equal(first.Private, host.Private):
					c.Fault(item.At, item.Field, "%s admits other private ranges in this group (line %d) than in group %s (line %d)",
						quote(host.Written), host.Line, quote(first.Group), first.Line)
				}
			}
		}
	}
}

// group finds the group that item names, or nil; unknown is told of one that there is
// not.
func (c *compiler) group(item Item, unknown finder) *Group {
	if item.Group == "" {
		return nil
	}
	g := c.groups[item.Group]
	if g == nil {
		unknown(item.At, item.Field, "no group is called %s%s; a host has a dot in it", quote(item.Group), suggest(item.Group, slices.Sorted(maps.Keys(c.groups))))
		return nil
	}
	g.used = true
	return g
}

// remove removes a group or a host, and warns if that changes nothing.
func (c *compiler) remove(e *draft, item Item) {
	hosts := []*firewall.Entry{item.Host}
	if item.Host == nil {
		g := c.group(item, c.warn)
		if g == nil {
			return
		}
		hosts = g.Hosts
	}
	changed := false
	for _, host := range hosts {
		if e.remove(host) {
			changed = true
		}
	}
	if !changed && len(hosts) > 0 {
		c.warn(item.At, item.Field, "takes nothing away: neither what the policy extends nor its groups allow it")
	}
}
