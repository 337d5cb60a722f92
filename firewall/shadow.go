package firewall

import (
	"bytes"
	"fmt"
	"io"
	"slices"

	"sallyport/internal/strictyaml"
)

// Shadowed lists what stands in an allowlist and makes no difference: a host that
// other entries cover with all its ports, a removal that another takes over or
// that the policy's own list undoes, and a budget that nothing can reach. It is for people who keep the file; the gate
// does not mind. The error is that of Parse.
func Shadowed(r io.Reader, filename string) (FileErrors, error) {
	src, err := io.ReadAll(io.LimitReader(r, maxFile+1))
	if err != nil {
		return nil, strictyaml.Unreadable(filename, err)
	}
	ps, err := Parse(bytes.NewReader(src), filename)
	if err != nil {
		return nil, err
	}
	l := newLoader(filename)
	s := &shadows{loader: l, policies: ps, raw: l.readFile(l.Document(bytes.NewReader(src)))}
	s.groupEntries()
	for _, p := range s.raw.policies {
		s.ownEntries(p)
		s.removals(p)
		s.budgets(p)
	}
	strictyaml.Sort(s.reports)
	return s.reports, nil
}

type shadows struct {
	*loader
	policies *Policies
	raw      rawFile
	reports  FileErrors
}

func (s *shadows) report(p strictyaml.Pos, field, format string, args ...any) {
	s.reports = append(s.reports, s.Finding(p, field, format, args...))
}

// groupEntries reports the entries of a group that every policy with that group
// has from elsewhere, too.
func (s *shadows) groupEntries() {
	for _, g := range s.raw.groups {
		users := s.users(g)
		for i, e := range g.entries {
			var by Decision
			for _, p := range users {
				if by = s.cover(p, e); !by.Allowed() {
					break
				}
			}
			if by.Allowed() {
				s.report(strictyaml.Pos{Line: e.line}, fmt.Sprintf("%s.%s[%d]", wordGroups, g.name, i), "%s is allowed already by %s: remove it", quote(e.written), where(by))
			}
		}
	}
}

// users are the policies that allow or remove g by its name.
func (s *shadows) users(g *rawGroup) []*rawPolicy {
	var users []*rawPolicy
	for _, p := range s.raw.policies {
		if slices.ContainsFunc(slices.Concat(p.allow, p.remove), func(item rawItem) bool { return item.group == g.name }) {
			users = append(users, p)
		}
	}
	return users
}

func (s *shadows) ownEntries(p *rawPolicy) {
	for _, item := range p.allow {
		if e := item.entry; e != nil {
			if by := s.cover(p, e); by.Allowed() {
				s.report(item.at, item.field, "%s is allowed already by %s: remove it", quote(e.written), where(by))
			}
		}
	}
}

// cover is the decision that would allow all of e under p without e, with the
// same private ranges; a refusal where there is none.
func (s *shadows) cover(p *rawPolicy, e *entry) Decision {
	if by := s.same(p, e); by.Allowed() {
		return by
	}
	policy, _ := s.policies.Policy(p.name)
	var by Decision
	names := []string{e.host.s}
	if e.tree { // a label that no file holds stands for the subdomains
		names = append(names, "sallyport-any-other."+e.host.s)
	}
	for _, port := range e.portList() {
		for _, name := range names {
			by = policy.decide(Name{name}, func(gs []grant) *entry {
				if have := grantOf(gs, port); have != nil && have.scope() != e.scope() {
					return have
				}
				return nil
			}, port)
			if !by.Allowed() || by.Via != policy.wayOf(e) || !slices.Equal(by.private, e.private) {
				return Decision{}
			}
		}
	}
	return by
}

// same finds an earlier entry of the same scope, in a group of p or in what p
// extends, that has all of e. What p removes does not count.
func (s *shadows) same(p *rawPolicy, e *entry) Decision {
	removed := slices.ContainsFunc(p.remove, func(item rawItem) bool {
		return slices.ContainsFunc(s.hosts(item), func(r *entry) bool { return r.scope().covers(e.scope()) })
	})
	if removed {
		return Decision{}
	}
	for _, item := range p.allow {
		if item.group == e.group || item.group == "" {
			continue
		}
		for _, have := range s.hosts(item) {
			if have.scope() == e.scope() && (e.group == "" || have.line < e.line) && have.holds(e) {
				return have.allow()
			}
		}
	}
	policy, _ := s.policies.Policy(p.name)
	from, _ := s.policies.Policy(p.extends)
	if from == nil || from.nodes[e.host.s] == nil {
		return Decision{}
	}
	grants := from.nodes[e.host.s].exact
	if e.tree {
		grants = from.nodes[e.host.s].tree
	}
	for _, port := range e.portList() {
		if have := grantOf(grants, port); have == nil || have.via != policy.wayOf(e) || !slices.Equal(have.private, e.private) || have.line == e.line {
			return Decision{}
		}
	}
	return grantOf(grants, e.portList()[0]).allow()
}

// holds reports whether e has the ports and the private ranges of other.
func (e *entry) holds(other *entry) bool {
	for _, port := range other.portList() {
		if !slices.Contains(e.portList(), port) {
			return false
		}
	}
	return e.via == other.via && slices.Equal(e.private, other.private)
}

// hosts are the entries that an item stands for.
func (s *shadows) hosts(item rawItem) []*entry {
	if item.entry != nil {
		return []*entry{item.entry}
	}
	for _, g := range s.raw.groups {
		if g.name == item.group {
			return g.entries
		}
	}
	return nil
}

// removals reports what p need not remove.
func (s *shadows) removals(p *rawPolicy) {
	for i, item := range p.remove {
		if item.entry == nil {
			continue
		}
		scope := item.entry.scope()
		for j, other := range p.remove {
			if e := other.entry; e != nil && i != j && e.scope() != scope && e.scope().covers(scope) {
				s.report(item.at, item.field, "%s goes with %s, which the policy removes on line %d: remove this entry", quote(item.entry.written), quote(e.written), e.line)
				break
			}
		}
		for _, other := range p.allow {
			if e := other.entry; e != nil && e.scope() == scope {
				s.report(item.at, item.field, "%s is allowed again by the policy's own list on line %d", quote(item.entry.written), e.line)
			}
		}
	}
}

// where names the rule of a decision.
func where(d Decision) string {
	text := quote(d.Rule)
	if d.Group != "" {
		text += " of group " + quote(d.Group)
	}
	return fmt.Sprintf("%s on line %d", text, d.Line)
}
