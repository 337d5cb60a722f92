package firewall

import (
	"maps"
	"net/netip"
	"slices"

	"sallyport/firewall/budget"
)

// DefaultPort is the port of an entry that names none.
const DefaultPort = 443

// Any is the word, in a file and as the rule of a decision, for every host that no
// entry names.
const Any = "any"

// servedPorts are those of the gate's tunnel and of its HTTP forwarder. A policy with
// "allow: any" allows them of a host that no entry names.
var servedPorts = [...]uint16{80, 443}

// Served reports whether the gate serves a port: no policy makes another one reachable.
func Served(port uint16) bool { return slices.Contains(servedPorts[:], port) }

// Policies are the policies of one allowlist. They are immutable; a nil *Policies and
// the zero Policies hold none. NewPolicies makes others.
type Policies struct {
	byName  map[string]*Policy
	names   []string
	digest  string
	refused []netip.Prefix // see Refuse
}

// Refuse returns the policies with further addresses that no host may lead to, such as
// the prefix of a network's own NAT64 (RFC 6052): they count like the floor, before what
// an entry admits. They are no part of the digest, which is the file's.
func (ps *Policies) Refuse(prefixes []netip.Prefix) *Policies {
	if ps == nil || len(prefixes) == 0 {
		return ps
	}
	stricter := *ps
	stricter.refused = slices.Clone(prefixes)
	stricter.byName = make(map[string]*Policy, len(ps.byName))
	for name, p := range ps.byName {
		q := *p
		q.refused = stricter.refused
		stricter.byName[name] = &q
	}
	return &stricter
}

// Policy returns the policy of that name; where there is none it returns nil,
// which denies everything, and false.
func (ps *Policies) Policy(name string) (*Policy, bool) {
	if ps == nil {
		return nil, false
	}
	p, ok := ps.byName[name]
	return p, ok
}

// Names lists the policies, sorted.
func (ps *Policies) Names() []string {
	if ps == nil {
		return nil
	}
	return slices.Clone(ps.names)
}

// Digest identifies the effect of the whole file: "sha256:" and the hash of all
// policies' names and digests. It is "" for a nil *Policies.
func (ps *Policies) Digest() string {
	if ps == nil {
		return ""
	}
	return ps.digest
}

// A Policy is a set of allowed hosts. It is immutable; nil and the zero Policy
// deny everything.
type Policy struct {
	name     string
	digest   string
	any      bool
	anyLine  int // where the file says so
	passECH  bool
	via      string // the proxy that leads to what any allows; "" if none does
	budget   budget.Budget
	refused  []netip.Prefix    // see Policies.Refuse
	nodes    map[string]*node  // by name without a leading dot
	takenOut map[*entry]*entry // see Rules.TakenOut
	closed   *Decision         // if not nil, what is said of every name
	behind   *Policy           // the one that is closed

	// hidden is the node in whose place Without has shown; nil for no such.
	hidden, shown *node
}

// A node holds what a policy says of one name alone (exact) and of that name
// with all its subdomains (tree).
type node struct {
	exact, tree     []grant // by port
	noExact, noTree *entry  // the "remove:" that takes away what wider entries allow
	resolver        bool    // a public DNS-over-HTTPS resolver: wider entries do not count
}

// A grant is one port of one entry.
type grant struct {
	port  uint16
	entry *entry
}

// An entry is an Entry of a policy.
type entry struct {
	Entry
	badPort string // the detail of a refusal for another port
}

// Name is the policy's name in the file, "" for a nil Policy.
func (p *Policy) Name() string {
	if p == nil {
		return ""
	}
	return p.name
}

// Digest identifies the effect of the policy: "sha256:" and the hash of its
// effective entries in canonical form. Order, comments, and the names of groups
// do not change it; anything that changes a decision does. It is "" for nil.
func (p *Policy) Digest() string {
	if p == nil {
		return ""
	}
	return p.digest
}

// PassECH reports whether a TLS hello may hide the host's real name.
func (p *Policy) PassECH() bool { return p != nil && p.passECH }

// Budget is what a run under the policy may use.
func (p *Policy) Budget() budget.Budget {
	if p == nil {
		return budget.Budget{}
	}
	return p.budget
}

// Any reports whether the policy allows hosts that no entry names.
func (p *Policy) Any() bool { return p != nil && p.any }

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
				if g.entry.Via != "" {
					names[g.entry.Via] = true
				}
			}
		}
	}
	return slices.Sorted(maps.Keys(names))
}
