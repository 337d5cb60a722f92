package firewall

import (
	"maps"
	"slices"

	"github.com/goccy/go-yaml/ast"
)

// noProxy is what stands for none in the place of a proxy's name.
const noProxy = "none"

// wayOf is the proxy that an entry or "any" is reached by, "" for none, where via is
// its own word and otherwise that of its policy.
func wayOf(via, otherwise string) string {
	if via == "" {
		via = otherwise
	}
	if via == noProxy {
		return ""
	}
	return via
}

// A lead makes the entries of one policy, which say by which way they are reached
// under it; the same for the same.
type lead struct {
	via  string // the policy's own word
	made map[*entry]*entry
}

func (l lead) entry(en *entry) *entry {
	way := wayOf(en.via, l.via)
	if way == en.via {
		return en
	}
	if l.made[en] == nil {
		other := *en
		other.via = way
		l.made[en] = &other
	}
	return l.made[en]
}

// readVia reads the name of the proxy by way of which a host is reached. Where
// that proxy is, and its credentials, is for the gate's settings: they have no
// place in a file that is reviewed and shared.
func (l *loader) readVia(n ast.Node, field string) string {
	s, p, ok := l.Scalar(n, field, "the name of a proxy")
	if ok && !nameForm.MatchString(s) {
		l.Fault(p, field, "%s is not the name of a proxy, which stands in the gate's settings: %s", quote(s), nameFormText)
		return ""
	}
	return s
}

// Vias returns the names of the proxies that the policies lead to,
// sorted.
func (ps *Policies) Vias() []string {
	names := make(map[string]bool)
	for _, p := range ps.byName {
		if p.any && p.via != "" {
			names[p.via] = true
		}
		for _, nd := range p.nodes {
			for _, g := range slices.Concat(nd.exact, nd.tree) {
				if g.entry.via != "" {
					names[g.entry.via] = true
				}
			}
		}
	}
	return slices.Sorted(maps.Keys(names))
}
