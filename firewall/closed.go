package firewall

// Closed is p while the gate must not act on it: it denies every name for a
// reason that is not of the allowlist, and is p in everything else.
func (p *Policy) Closed(reason Reason, detail string) *Policy {
	var c Policy
	if p != nil {
		c = *p
	}
	c.closed = &Decision{Verdict: Deny, Reason: reason, Detail: detail}
	c.behind = p
	return &c
}

// Behind is the policy that p was made of by Closed, or p itself: what the
// allowlist says, whether or not anything new may be decided by it now.
func (p *Policy) Behind() *Policy {
	if p == nil || p.closed == nil {
		return p
	}
	return p.behind.Behind()
}
