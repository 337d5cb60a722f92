package firewall

// Decide says whether the sandbox may talk to port of n. The floor comes first.
// Of the entries that match, the most specific one that has the port decides.
func (p *Policy) Decide(n Name, port uint16) Decision {
	return p.binding(p.decide(n, func(g []grant) *entry { return grantOf(g, port) }, port, true))
}

// DecideSubdomains says whether the sandbox may talk to port of the names below n that
// no entry names more closely.
func (p *Policy) DecideSubdomains(n Name, port uint16) Decision {
	return p.binding(p.decide(n, func(g []grant) *entry { return grantOf(g, port) }, port, false))
}

// DecideUnnamed says whether the sandbox may talk to port of the hosts that no entry
// names.
func (p *Policy) DecideUnnamed(port uint16) Decision {
	switch {
	case p == nil:
		return Decision{Verdict: Deny, Reason: ReasonNotListed}
	case p.closed != nil:
		return p.binding(*p.closed)
	case !p.any:
		return p.binding(Decision{Verdict: Deny, Reason: ReasonNotListed})
	}
	return p.binding(p.decideAny(port))
}

// DecideDNS says whether n may be resolved: whether any of its ports is allowed.
func (p *Policy) DecideDNS(n Name) Decision {
	return p.binding(p.decide(n, firstGrant, DefaultPort, true))
}

// binding is a decision with the addresses that it does not lead to.
func (p *Policy) binding(d Decision) Decision {
	if p != nil {
		d.refused = p.refused
	}
	return d
}

// node is what p says of the name s and of what is below it.
func (p *Policy) node(s string) *node {
	nd := p.nodes[s]
	if nd != nil && nd == p.hidden {
		return p.shown
	}
	return nd
}

// Without is p as it would be without the entries of exactly the scope s. Its digest is
// that of p.
func (p *Policy) Without(s Scope) *Policy {
	if p == nil || p.nodes[s.Name.s] == nil {
		return p
	}
	q, nd := *p, *p.nodes[s.Name.s]
	if s.Subdomains {
		nd.tree = nil
	} else {
		nd.exact = nil
	}
	q.hidden, q.shown = p.nodes[s.Name.s], &nd
	return &q
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
// entries of one name the one that allows, or nil. Without whole, the decision is that
// for the subdomains of n.
func (p *Policy) decide(n Name, pick func([]grant) *entry, port uint16, whole bool) Decision {
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
		nd := p.node(s)
		if nd == nil {
			continue
		}
		if whole && len(s) == len(n.s) {
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
	d := Decision{Verdict: Allow, Reason: ReasonOpen, Rule: Any, Line: p.anyLine, Via: p.via, tree: true}
	if !Served(port) {
		d.Verdict, d.Reason, d.Detail = Deny, ReasonPortNotAllowed, "ports allowed: 80, 443"
	}
	return d
}

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
	return Decision{Verdict: Deny, Reason: ReasonPortNotAllowed, Rule: e.Written, Group: e.Group, Line: e.Line, Detail: e.badPort}
}

func (e *entry) allow() Decision {
	return Decision{Verdict: Allow, Reason: ReasonListed, Rule: e.Written, Group: e.Group, Line: e.Line, Via: e.Via, private: e.Private, tree: e.Subdomains, under: e.Name.s}
}

func (e *entry) removed() Decision {
	return Decision{Verdict: Deny, Reason: ReasonRemoved, Rule: e.Written, Group: e.Group, Line: e.Line}
}
