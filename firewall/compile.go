package firewall

import (
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"

	"sallyport/internal/strictyaml"
)

// maxGrants bounds what all policies of a file come to together, since a short
// file can name one long group many times.
const maxGrants = 1 << 18

// compile puts the parts of the file together.
func (l *loader) compile(raw rawFile) *Policies {
	c := &compiler{loader: l, groups: make(map[string]*rawGroup), policies: make(map[string]*rawPolicy), done: make(map[string]*effect)}
	for _, g := range raw.groups {
		c.groups[g.name] = g
	}
	for _, p := range raw.policies {
		c.policies[p.name] = p
	}
	ps := &Policies{byName: make(map[string]*Policy)}
	for _, p := range raw.policies {
		ps.byName[p.name] = c.effect(p, nil).policy(p.name)
		ps.names = append(ps.names, p.name)
	}
	c.checkUnused(raw.groups)
	slices.Sort(ps.names)
	h := sha256.New()
	for _, n := range ps.names {
		fmt.Fprintf(h, "%s %s\n", n, ps.byName[n].digest)
	}
	ps.digest = fmt.Sprintf("sha256:%x", h.Sum(nil))
	strictyaml.Sort(l.warnings)
	ps.warnings = l.warnings
	return ps
}

// checkUnused warns of groups that no policy names.
func (c *compiler) checkUnused(groups []*rawGroup) {
	for _, g := range groups {
		if !g.used {
			c.warn(g.at, wordGroups+"."+show(g.name), "no policy uses this group: name it in one, or remove it")
		}
	}
}

type compiler struct {
	*loader
	groups   map[string]*rawGroup
	policies map[string]*rawPolicy
	done     map[string]*effect
	grants   int // so far, in all policies
}

// effect is what p extends and the groups it allows, less what it removes, and
// the hosts of its own list. What comes later decides for the same host and port.
func (c *compiler) effect(p *rawPolicy, path []string) *effect {
	if e, ok := c.done[p.name]; ok {
		return e
	}
	if c.grants > maxGrants {
		return new(effect)
	}
	e := c.inherited(p, append(path, p.name))
	c.addGroups(e, p)
	for _, item := range p.remove {
		c.take(e, item)
	}
	for _, item := range p.allow {
		switch {
		case item.any:
			e.any, e.anyLine = true, item.at.Line
		case item.entry != nil:
			e.add(item.entry)
		}
	}
	if p.ech != nil {
		e.ech = p.ech
	}
	if p.via != "" {
		e.via = p.via
	}
	for _, v := range p.budgets {
		e.budget.Set(v.kind, v.value)
	}
	if !e.any && len(e.grants) == 0 && (len(p.allow) > 0 || p.extends != "") { // else it says so itself
		c.warn(p.at, wordPolicies+"."+show(p.name), "allows nothing")
	}
	c.done[p.name] = e
	for _, ports := range e.grants {
		c.grants += len(ports)
	}
	if c.grants > maxGrants {
		c.Fault(p.at, wordPolicies+"."+show(p.name), "the policies up to here come to more than %d entries", maxGrants)
	}
	return e
}

// inherited is a copy of the effect of the policy that p extends.
func (c *compiler) inherited(p *rawPolicy, path []string) *effect {
	e := &effect{grants: make(map[scope]map[uint16]*entry), removed: make(map[scope]*entry)}
	if p.extends == "" {
		return e
	}
	field := wordPolicies + "." + show(p.name) + "." + wordExtends
	parent, ok := c.policies[p.extends]
	switch {
	case !ok:
		c.Fault(p.extAt, field, "no policy is called %s%s", quote(p.extends), suggest(p.extends, keys(c.policies)))
		return e
	case slices.Contains(path, p.extends):
		c.Fault(p.extAt, field, "goes round in a circle: %s", show(strings.Join(append(path, p.extends), " -> ")))
		return e
	}
	from := c.effect(parent, path)
	e.any, e.anyLine, e.ech, e.via, e.budget = from.any, from.anyLine, from.ech, from.via, from.budget
	for s, ports := range from.grants {
		for port, en := range ports {
			e.grant(s, port, en)
		}
	}
	e.taken = slices.Clone(from.taken)
	for s, en := range from.removed {
		e.removed[s] = en
	}
	return e
}

// addGroups adds the groups that p allows. Two that admit different private
// ranges for one host contradict each other.
func (c *compiler) addGroups(e *effect, p *rawPolicy) {
	own := make(map[scope]map[uint16]*entry)
	for _, item := range p.allow {
		g := c.group(item, c.Fault)
		if g == nil {
			continue
		}
		for _, en := range g.entries {
			for _, port := range en.portList() {
				first := own[en.scope()][port]
				switch {
				case first == nil:
					e.grant(en.scope(), port, en)
					grantIn(own, en.scope(), port, en)
				case first.via != en.via:
					c.Fault(item.at, item.field, "%s is reached by another way in this group (line %d) than in group %s (line %d)",
						quote(en.written), en.line, quote(first.group), first.line)
				case !slices.Equal(first.private, en.private):
					c.Fault(item.at, item.field, "%s admits other private ranges in this group (line %d) than in group %s (line %d)",
						quote(en.written), en.line, quote(first.group), first.line)
				}
			}
		}
	}
}

// group finds the group that item names, or nil; unknown is told of one that there is
// not.
func (c *compiler) group(item rawItem, unknown finder) *rawGroup {
	if item.group == "" {
		return nil
	}
	g := c.groups[item.group]
	if g == nil {
		unknown(item.at, item.field, "no group is called %s%s; a host has a dot in it", quote(item.group), suggest(item.group, keys(c.groups)))
		return nil
	}
	g.used = true
	return g
}

// take removes a group or a host, and warns if that changes nothing.
func (c *compiler) take(e *effect, item rawItem) {
	entries := []*entry{item.entry}
	if item.entry == nil {
		g := c.group(item, c.warn)
		if g == nil {
			return
		}
		entries = g.entries
	}
	taken := false
	for _, en := range entries {
		if e.remove(en) {
			taken = true
		}
	}
	if !taken && len(entries) > 0 {
		c.warn(item.at, item.field, "takes nothing away: neither what the policy extends nor its groups allow it")
	}
}

func keys[V any](m map[string]V) []string {
	var ks []string
	for k := range m {
		ks = append(ks, k)
	}
	slices.Sort(ks)
	return ks
}
