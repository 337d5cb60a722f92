package firewall

import (
	"maps"
	"slices"

	"github.com/goccy/go-yaml/ast"
)

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

// Vias returns the names of the proxies that entries of the policies name,
// sorted.
func (ps *Policies) Vias() []string {
	names := make(map[string]bool)
	for _, p := range ps.byName {
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
