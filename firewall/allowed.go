package firewall

import (
	"cmp"
	"slices"
)

// An Allowance is one host that a policy allows, and its ports. A host with a
// leading dot stands for every subdomain, too.
type Allowance struct {
	Host  string   `json:"host"`
	Ports []uint16 `json:"ports"`
}

// Allowed lists the effective entries of a policy, sorted by host without its
// dot. What Any adds, and what a "remove:" takes away from a wider entry, is not
// in it.
func (p *Policy) Allowed() []Allowance {
	if p == nil {
		return nil
	}
	var list []Allowance
	add := func(host string, gs []grant) {
		if len(gs) == 0 {
			return
		}
		a := Allowance{Host: host}
		for _, g := range gs {
			a.Ports = append(a.Ports, g.port)
		}
		list = append(list, a)
	}
	for name, nd := range p.nodes {
		add(name, nd.exact)
		add("."+name, nd.tree)
	}
	bare := func(s string) string {
		if s[0] == '.' {
			return s[1:]
		}
		return s
	}
	slices.SortFunc(list, func(a, b Allowance) int {
		return cmp.Or(cmp.Compare(bare(a.Host), bare(b.Host)), cmp.Compare(a.Host, b.Host))
	})
	return list
}
