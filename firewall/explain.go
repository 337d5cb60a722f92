package firewall

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// A Match is one thing that bears on a host: an entry, a removal, the word
// "any", or a rule of the floor. Its Decision is what it says by itself.
type Match struct {
	Decision
	// Decides marks the one match that made the policy's decision.
	Decides bool
	// Ports and Private are those of an entry.
	Ports   []uint16
	Private []netip.Prefix
}

// Explain returns everything that bears on n and port, from the most specific
// to the least, but first of all the one that decides, and last the entries that
// the policy's removals took out. It is empty where nothing
// does. What it says and what Decide says come from the same data.
func (p *Policy) Explain(n Name, port uint16) []Match {
	var ms []Match
	if row, bad := n.floor(); bad {
		ms = append(ms, Match{Decision: Decision{Verdict: Deny, Reason: ReasonFloorName, Rule: row.rule, Detail: row.detail}})
	}
	if p != nil {
		ms = append(ms, p.matches(n, port)...)
	}
	d := p.Decide(n, port)
	for i, m := range ms {
		if m.Reason == d.Reason && m.Line == d.Line && (m.Rule == d.Rule || d.Rule == "") {
			m.Decides = true
			copy(ms[1:i+1], ms[:i])
			ms[0] = m
			break
		}
	}
	return ms
}

func (p *Policy) matches(n Name, port uint16) []Match {
	var ms []Match
	for s, more := n.s, n.s != ""; more; s, more = parent(s) {
		nd := p.node(s)
		if nd == nil {
			continue
		}
		if len(s) == len(n.s) {
			ms = appendGrants(ms, nd.exact, port)
			ms = appendRemoval(ms, nd.noExact)
		}
		ms = appendGrants(ms, nd.tree, port)
		ms = appendRemoval(ms, nd.noTree)
		if nd.resolver {
			ms = append(ms, Match{Decision: Decision{Verdict: Deny, Reason: ReasonDoH, Rule: "." + s, Detail: resolverDetail}})
		}
	}
	if p.any {
		ms = append(ms, Match{Decision: p.decideAny(port), Ports: slices.Clone(servedPorts[:])})
	}
	return append(ms, p.takenOf(n)...)
}

// takenOf lists the entries for n that the policy would have without its removals,
// each once and by line.
func (p *Policy) takenOf(n Name) []Match {
	var ms []Match
	for e, by := range p.takenOut {
		if !e.Covers(Scope{Name: n}) {
			continue
		}
		d := e.removed()
		d.Detail = fmt.Sprintf("taken out with %s on line %d", by.Written, by.Line)
		if by.Group != "" {
			d.Detail = "taken out with group " + by.Group
		}
		ms = append(ms, Match{Decision: d, Ports: slices.Clone(e.Ports), Private: slices.Clone(e.Private)})
	}
	slices.SortFunc(ms, func(a, b Match) int {
		return cmp.Or(a.Line-b.Line, strings.Compare(a.Rule, b.Rule), slices.Compare(a.Ports, b.Ports))
	})
	return ms
}

// appendGrants appends each entry of gs once.
func appendGrants(ms []Match, gs []grant, port uint16) []Match {
	seen := make(map[*entry]bool)
	for _, g := range gs {
		e := g.entry
		if seen[e] {
			continue
		}
		seen[e] = true
		m := Match{Decision: e.otherPort(), Ports: slices.Clone(e.Ports), Private: slices.Clone(e.Private)}
		m.Via = e.Via
		if grantOf(gs, port) == e {
			m.Decision = e.allow()
		}
		ms = append(ms, m)
	}
	return ms
}

func appendRemoval(ms []Match, e *entry) []Match {
	if e == nil {
		return ms
	}
	return append(ms, Match{Decision: e.removed()})
}
