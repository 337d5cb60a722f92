package firewall

import (
	"crypto/sha256"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

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
	for _, g := range raw.groups {
		if !g.used {
			l.fault(g.at, wordGroups+"."+show(g.name), "no policy uses this group: name it in one, or remove it")
		}
	}
	slices.Sort(ps.names)
	h := sha256.New()
	for _, n := range ps.names {
		fmt.Fprintf(h, "%s %s\n", n, ps.byName[n].digest)
	}
	ps.digest = fmt.Sprintf("sha256:%x", h.Sum(nil))
	sortByLine(l.warnings)
	ps.warnings = l.warnings
	return ps
}

type compiler struct {
	*loader
	groups   map[string]*rawGroup
	policies map[string]*rawPolicy
	done     map[string]*effect
}

// A scope is a name alone or with every subdomain.
type scope struct {
	name string
	tree bool
}

func (e *entry) scope() scope { return scope{e.host.s, e.tree} }

// covers reports whether every name in t is in s.
func (s scope) covers(t scope) bool {
	if s == t {
		return true
	}
	return s.tree && (t.name == s.name || strings.HasSuffix(t.name, "."+s.name))
}

// An effect is what a policy comes to once all it refers to is put in.
type effect struct {
	any     bool
	anyLine int
	ech     *bool
	grants  map[scope]map[uint16]*entry
	removed map[scope]*entry
}

// effect is what p extends and the groups it allows, less what it removes, and
// the hosts of its own list. What comes later decides for the same host and port.
func (c *compiler) effect(p *rawPolicy, path []string) *effect {
	if e, ok := c.done[p.name]; ok {
		return e
	}
	e := c.inherited(p, append(path, p.name))
	c.addGroups(e, p)
	for _, item := range p.remove {
		c.take(e, item)
	}
	for _, item := range p.allow {
		switch {
		case item.any:
			e.any, e.anyLine = true, item.at.line
		case item.entry != nil:
			e.add(item.entry)
		}
	}
	if p.ech != nil {
		e.ech = p.ech
	}
	if !e.any && len(e.grants) == 0 && (len(p.allow) > 0 || len(p.remove) > 0) {
		c.fault(p.at, wordPolicies+"."+show(p.name), "allows nothing")
	}
	c.done[p.name] = e
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
		c.fault(p.extAt, field, "no policy is called %s%s", quote(p.extends), suggest(p.extends, keys(c.policies)))
		return e
	case slices.Contains(path, p.extends):
		c.fault(p.extAt, field, "goes round in a circle: %s", show(strings.Join(append(path, p.extends), " -> ")))
		return e
	}
	from := c.effect(parent, path)
	e.any, e.anyLine, e.ech = from.any, from.anyLine, from.ech
	for s, ports := range from.grants {
		for port, en := range ports {
			e.grant(s, port, en)
		}
	}
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
		g := c.group(item)
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
				case !slices.Equal(first.private, en.private):
					c.fault(item.at, item.field, "%s admits other private ranges in this group (line %d) than in group %s (line %d)",
						quote(en.written), en.line, quote(first.group), first.line)
				}
			}
		}
	}
}

// group finds the group that item names, or nil; an unknown one is a fault.
func (c *compiler) group(item rawItem) *rawGroup {
	if item.group == "" {
		return nil
	}
	g := c.groups[item.group]
	if g == nil {
		c.fault(item.at, item.field, "no group is called %s%s; a host has a dot in it", quote(item.group), suggest(item.group, keys(c.groups)))
		return nil
	}
	g.used = true
	return g
}

// take removes a group or a host; it is a fault if that changes nothing.
func (c *compiler) take(e *effect, item rawItem) {
	entries := []*entry{item.entry}
	if item.entry == nil {
		g := c.group(item)
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
		c.fault(item.at, item.field, "removes nothing: the policy does not allow it up to here")
	}
}

func (e *effect) add(en *entry) {
	for _, port := range en.portList() {
		e.grant(en.scope(), port, en)
	}
}

func (e *effect) grant(s scope, port uint16, en *entry) { grantIn(e.grants, s, port, en) }

func grantIn(grants map[scope]map[uint16]*entry, s scope, port uint16, en *entry) {
	if grants[s] == nil {
		grants[s] = make(map[uint16]*entry)
	}
	grants[s][port] = en
}

// remove takes away the scope of en: what lies in it goes, and where a wider
// entry still covers it, a mark stays. It reports whether anything changed.
func (e *effect) remove(en *entry) bool {
	s, changed := en.scope(), false
	for have := range e.grants {
		if s.covers(have) {
			delete(e.grants, have)
			changed = true
		}
	}
	if !e.covered(s) {
		return changed
	}
	for have := range e.removed {
		if s.covers(have) {
			delete(e.removed, have)
		}
	}
	e.removed[s] = en
	return true
}

// covered reports whether something wider than s allows names in s.
func (e *effect) covered(s scope) bool {
	if e.removed[s] != nil {
		return false
	}
	name, ok := s.name, true
	if s.tree {
		name, ok = parent(name)
	}
	for ; ok; name, ok = parent(name) {
		wider := scope{name, true}
		if len(e.grants[wider]) > 0 {
			return true
		}
		if e.removed[wider] != nil {
			return false
		}
	}
	return e.any
}

// policy makes the immutable form.
func (e *effect) policy(name string) *Policy {
	p := &Policy{name: name, any: e.any, anyLine: e.anyLine, passECH: e.any, nodes: make(map[string]*node)}
	if e.ech != nil {
		p.passECH = *e.ech
	}
	for s, ports := range e.grants {
		var gs []grant
		for port, en := range ports {
			gs = append(gs, grant{port, en})
		}
		slices.SortFunc(gs, func(a, b grant) int { return int(a.port) - int(b.port) })
		if nd := p.node(s.name); s.tree {
			nd.tree = gs
		} else {
			nd.exact = gs
		}
	}
	for s, en := range e.removed {
		if nd := p.node(s.name); s.tree {
			nd.noTree = en
		} else {
			nd.noExact = en
		}
	}
	for _, h := range dohHosts {
		nd := p.node(h)
		nd.resolver = true
		nd.resolverRefuseMsg = "a public DNS-over-HTTPS resolver needs an entry of its own: " + h
	}
	p.digest = e.digest(p.passECH)
	return p
}

func (p *Policy) node(name string) *node {
	nd := p.nodes[name]
	if nd == nil {
		nd = new(node)
		p.nodes[name] = nd
	}
	return nd
}

// digest hashes a text of one line for each thing that bears on a decision.
func (e *effect) digest(passECH bool) string {
	lines := []string{"ech " + strconv.FormatBool(passECH)}
	if e.any {
		lines = append(lines, wordAny)
	}
	for s, ports := range e.grants {
		for port, en := range ports {
			lines = append(lines, fmt.Sprintf("allow %s %d %v", s, port, en.private))
		}
	}
	for s := range e.removed {
		lines = append(lines, "remove "+s.String())
	}
	slices.Sort(lines)
	sum := sha256.Sum256([]byte("sallyport policy 1\n" + strings.Join(lines, "\n")))
	return fmt.Sprintf("sha256:%x", sum)
}

func (s scope) String() string {
	if s.tree {
		return "." + s.name
	}
	return s.name
}

// portList is the ports of the entry, 443 where it names none.
func (e *entry) portList() []uint16 {
	if len(e.ports) == 0 {
		return []uint16{DefaultPort}
	}
	return e.ports
}

func keys[V any](m map[string]V) []string {
	var ks []string
	for k := range m {
		ks = append(ks, k)
	}
	slices.Sort(ks)
	return ks
}
