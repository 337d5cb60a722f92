package firewall

import (
	"net/netip"
	"slices"

	"sallyport/firewall/budget"
)

// DefaultPort is the port of an entry that names none.
const DefaultPort = 443

// openPorts are the ports on which a policy with "allow: any" allows a host that
// no entry names: those of the gate's tunnel and of its HTTP forwarder.
var openPorts = [...]uint16{80, 443}

// Policies are the policies of one allowlist.yaml. They are immutable; a nil
// *Policies holds none.
type Policies struct {
	byName   map[string]*Policy
	names    []string
	digest   string
	warnings FileErrors
	refused  []netip.Prefix // see Refuse
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

// Warnings are what is legal in the file and probably not meant: a host under
// which anybody can register, a port that the gate does not serve.
func (ps *Policies) Warnings() FileErrors {
	if ps == nil {
		return nil
	}
	return slices.Clone(ps.warnings)
}

// A Policy is a set of allowed hosts. It is immutable; nil and the zero Policy
// deny everything.
type Policy struct {
	name    string
	digest  string
	any     bool
	anyLine int // where the file says so
	passECH bool
	via     string // the proxy that leads to what any allows; "" if none does
	budget  budget.Budget
	refused []netip.Prefix   // see Policies.Refuse
	nodes   map[string]*node // by name without a leading dot
	taken   []taken
	closed  *Decision // if not nil, what is said of every name
	behind  *Policy   // the one that is closed
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

// An entry is one host of the file, of a group or of a policy.
type entry struct {
	host    Name
	tree    bool // the file has a leading dot: the host and every subdomain
	ports   []uint16
	private []netip.Prefix // sorted
	via     string         // the proxy that leads to the host; "" if none does
	written string         // the host as written
	group   string         // "" for an entry of a policy's own list
	line    int
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

// Decide says whether the sandbox may talk to port of n. The floor comes first.
// Of the entries that match, the most specific one that has the port decides.
func (p *Policy) Decide(n Name, port uint16) Decision {
	return p.binding(p.decide(n, func(g []grant) *entry { return grantOf(g, port) }, port))
}

// DecideDNS says whether n may be resolved: whether any of its ports is allowed.
func (p *Policy) DecideDNS(n Name) Decision {
	return p.binding(p.decide(n, firstGrant, DefaultPort))
}

// binding is a decision with the addresses that it does not lead to.
func (p *Policy) binding(d Decision) Decision {
	if p != nil {
		d.refused = p.refused
	}
	return d
}

func grantOf(gs []grant, port uint16) *entry {
	for _, g := range gs {
		if g.port == port {
			return g.entry
		}
	}
	return nil
}

func firstGrant(gs []grant) *entry {
	if len(gs) == 0 {
		return nil
	}
	return gs[0].entry
}

// decide walks from the whole name to its last label. pick chooses from the
// entries of one name the one that allows, or nil.
func (p *Policy) decide(n Name, pick func([]grant) *entry, port uint16) Decision {
	if n.IsZero() {
		return Decision{Verdict: Deny, Reason: ReasonBadName, Detail: "no host name"}
	}
	if row, bad := n.floor(); bad {
		return Decision{Verdict: Deny, Reason: ReasonFloorName, Detail: row.detail}
	}
	if p == nil {
		return Decision{Verdict: Deny, Reason: ReasonNotListed}
	}
	if p.closed != nil {
		return *p.closed
	}
	var otherPort *entry // the most specific entry that lacks the port
	for s, more := n.s, true; more; s, more = parent(s) {
		nd := p.nodes[s]
		if nd == nil {
			continue
		}
		if len(s) == len(n.s) {
			if e := pick(nd.exact); e != nil {
				return e.allow()
			}
			otherPort = firstOf(otherPort, nd.exact)
			if nd.noExact != nil {
				return stop(otherPort, nd.noExact.removed())
			}
		}
		if e := pick(nd.tree); e != nil {
			return e.allow()
		}
		otherPort = firstOf(otherPort, nd.tree)
		if nd.noTree != nil {
			return stop(otherPort, nd.noTree.removed())
		}
		if nd.resolver {
			return stop(otherPort, Decision{Verdict: Deny, Reason: ReasonDoH, Detail: resolverDetail})
		}
	}
	if !p.any {
		return stop(otherPort, Decision{Verdict: Deny, Reason: ReasonNotListed})
	}
	d := p.decideAny(port)
	if d.Allowed() {
		return d
	}
	return stop(otherPort, d)
}

// decideAny is what "allow: any" says of a port.
func (p *Policy) decideAny(port uint16) Decision {
	d := Decision{Verdict: Allow, Reason: ReasonOpen, Rule: wordAny, Line: p.anyLine, Via: p.via, tree: true}
	if !slices.Contains(openPorts[:], port) {
		d.Verdict, d.Reason, d.Detail = Deny, ReasonPortNotAllowed, "ports allowed: 80, 443"
	}
	return d
}

// wayOf is the proxy by way of which p reaches an entry that it was made of.
func (p *Policy) wayOf(e *entry) string { return wayOf(e.via, p.via) }

// firstOf returns e, or where it is nil the entry of the first of gs.
func firstOf(e *entry, gs []grant) *entry {
	if e == nil && len(gs) > 0 {
		return gs[0].entry
	}
	return e
}

// stop is the refusal d, unless an entry named the host and lacks only the port.
func stop(otherPort *entry, d Decision) Decision {
	if otherPort == nil {
		return d
	}
	return otherPort.otherPort()
}

// otherPort is what e says of a port that it does not have.
func (e *entry) otherPort() Decision {
	return Decision{Verdict: Deny, Reason: ReasonPortNotAllowed, Rule: e.written, Group: e.group, Line: e.line, Detail: e.badPort}
}

func (e *entry) allow() Decision {
	return Decision{Verdict: Allow, Reason: ReasonListed, Rule: e.written, Group: e.group, Line: e.line, Via: e.via, private: e.private, tree: e.tree, under: e.host.s}
}

func (e *entry) removed() Decision {
	return Decision{Verdict: Deny, Reason: ReasonRemoved, Rule: e.written, Group: e.group, Line: e.line}
}
