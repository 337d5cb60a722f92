package firewall

import (
	"crypto/sha256"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"sallyport/firewall/budget"
)

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
	via     string // of what says no other; as in the file
	budget  budget.Budget
	grants  map[scope]map[uint16]*entry
	removed map[scope]*entry
	taken   []taken
}

// A taken entry is one that "remove:" took out of a policy: for explanations.
type taken struct{ entry, by *entry }

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
			for _, gone := range e.grants[have] {
				e.taken = append(e.taken, taken{gone, en})
			}
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
	led := lead{e.via, make(map[*entry]*entry)}
	p := &Policy{name: name, any: e.any, anyLine: e.anyLine, passECH: e.any, via: wayOf("", e.via), budget: e.budget, nodes: make(map[string]*node)}
	if e.ech != nil {
		p.passECH = *e.ech
	}
	for s, ports := range e.grants {
		var gs []grant
		for port, en := range ports {
			gs = append(gs, grant{port, led.entry(en)})
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
	for _, r := range resolvers {
		p.node(r.host).resolver = true
	}
	p.taken = e.taken
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
		line := wordAny
		if way := wayOf("", e.via); way != "" {
			line += " via " + way
		}
		lines = append(lines, line)
	}
	for s, ports := range e.grants {
		for port, en := range ports {
			line := fmt.Sprintf("allow %s %d %v", s, port, en.private)
			if way := wayOf(en.via, e.via); way != "" {
				line += " via " + way
			}
			lines = append(lines, line)
		}
	}
	for s := range e.removed {
		lines = append(lines, "remove "+s.String())
	}
	for _, k := range budget.Kinds() {
		if n := e.budget.Get(k); n != 0 {
			lines = append(lines, fmt.Sprintf("budget %s %d", k, n))
		}
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
