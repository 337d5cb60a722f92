package admission

import (
	"net/netip"
	"sync"

	"sallyport/firewall"
	"sallyport/firewall/account"
	"sallyport/sniproxy/refusal"
)

// A Flow is what a verdict has let through: a tunnel, or one exchange of HTTP.
// A change of policy judges it again.
type Flow struct {
	Name     firewall.Name
	Port     uint16
	ECH      bool             // its hello hides the host's real name
	Policy   *firewall.Policy // that judged it
	Decision firewall.Decision

	Upstream netip.AddrPort
	Meter    *account.ConnMeter // of the connection to Upstream
	// Owner breaks both connections. It is called with a lock held, from any goroutine.
	Owner interface{ CutByPolicy() }

	// Guarded by flows.mu.
	cut    *refusal.Refusal // why a change of policy has cut it
	before *Flow
	after  *Flow
}

// flows are those of a Server that are under way.
type flows struct {
	mu    sync.Mutex // guards first, and what is said so of each
	first *Flow
}

// PolicyChanged judges everything that is under way by the policy that Current
// gives now, be it closed (firewall.Policy.Closed) or not. What that no longer allows is cut, and its record says so; the rest
// goes on undisturbed. A connection that is just being judged by the policy before
// is judged again before a byte of it leaves.
func (c *Cell) PolicyChanged() {
	c.flows.mu.Lock()
	defer c.flows.mu.Unlock()
	p := c.PolicyNow().Behind()
	c.Metered().SetBudget(p.Budget())
	for f := c.flows.first; f != nil; f = f.after {
		f.judge(p)
	}
}

// Begin makes f one that PolicyChanged judges. The caller calls End with it, once.
func (c *Cell) Begin(f *Flow) {
	c.flows.mu.Lock()
	defer c.flows.mu.Unlock()
	if f.after = c.flows.first; f.after != nil {
		f.after.before = f
	}
	f.before, c.flows.first = nil, f
	if p := c.PolicyNow().Behind(); p != f.Policy {
		f.judge(p)
	}
}

// End forgets f and returns why it was cut, or nil.
func (c *Cell) End(f *Flow) *refusal.Refusal {
	c.flows.mu.Lock()
	defer c.flows.mu.Unlock()
	if f.after != nil {
		f.after.before = f.before
	}
	if f.before != nil {
		f.before.after = f.after
	} else {
		c.flows.first = f.after
	}
	f.before, f.after = nil, nil
	return f.cut
}

// judge asks p about f and cuts it if p does not allow it. flows.mu is held.
func (f *Flow) judge(p *firewall.Policy) {
	d := p.Decide(f.Name, f.Port)
	why := ""
	switch {
	case f.cut != nil:
		return
	case !d.Allowed():
		why = string(d.Reason)
	case f.ECH && !p.PassECH():
		why = string(firewall.ReasonECH)
	case d.Via != f.Decision.Via: // the way it has taken is no longer the one to take
		why = "via"
	case admits(f.Decision, f.Upstream.Addr()) && !admits(d, f.Upstream.Addr()):
		why = string(firewall.ReasonAddress)
	default:
		return
	}
	f.cut = &refusal.Refusal{Reason: firewall.ReasonPolicyChanged, Detail: "cut by a reloaded allowlist: " + why}
	f.Owner.CutByPolicy()
}

func admits(d firewall.Decision, addr netip.Addr) bool {
	ok, _ := firewall.JudgeAnswer(d, []netip.Addr{addr})
	return ok
}

// Standing returns how many flows are under way.
func (c *Cell) Standing() (n int) {
	c.flows.mu.Lock()
	defer c.flows.mu.Unlock()
	for f := c.flows.first; f != nil; f = f.after {
		n++
	}
	return n
}
