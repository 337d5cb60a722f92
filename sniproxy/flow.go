package sniproxy

import (
	"net"
	"net/netip"
	"sync"

	"sallyport/firewall"
	"sallyport/firewall/account"
	"sallyport/sniproxy/refusal"
	"sallyport/sniproxy/socket"
)

// A flow is what a verdict has let through: a tunnel, or one exchange of HTTP.
// A change of policy judges it again.
type flow struct {
	name     firewall.Name
	port     uint16
	ech      bool             // its hello hides the host's real name
	policy   *firewall.Policy // that judged it
	decision firewall.Decision

	upstream   netip.AddrPort
	client, up *net.TCPConn        // of an exchange of HTTP
	owner      interface{ kill() } // cuts a tunnel; not called from its loop alone

	meter *account.ConnMeter // of the connection to upstream

	// Guarded by flows.mu.
	cut    *refusal.Refusal // why a change of policy has cut it
	before *flow
	after  *flow
}

// flows are those of a Server that are under way.
type flows struct {
	mu    sync.Mutex // guards first, and what is said so of each
	first *flow
}

// policy is the one of this moment.
func (s *Server) policy() *firewall.Policy {
	if s.Current != nil {
		return s.Current()
	}
	return s.Policy
}

// PolicyChanged judges everything that is under way by the policy that Current
// gives now, be it closed (firewall.Policy.Closed) or not. What that no longer allows is cut, and its record says so; the rest
// goes on undisturbed. A connection that is just being judged by the policy before
// is judged again before a byte of it leaves.
func (s *Server) PolicyChanged() {
	s.flows.mu.Lock()
	defer s.flows.mu.Unlock()
	p := s.policy().Behind()
	s.meter().SetBudget(p.Budget())
	for f := s.flows.first; f != nil; f = f.after {
		f.judge(p)
	}
}

// begin makes f one that PolicyChanged judges. The caller calls end with it, once.
func (s *Server) begin(f *flow) {
	s.flows.mu.Lock()
	defer s.flows.mu.Unlock()
	if f.after = s.flows.first; f.after != nil {
		f.after.before = f
	}
	f.before, s.flows.first = nil, f
	if p := s.policy().Behind(); p != f.policy {
		f.judge(p)
	}
}

// end forgets f and returns why it was cut, or nil.
func (s *Server) end(f *flow) *refusal.Refusal {
	s.flows.mu.Lock()
	defer s.flows.mu.Unlock()
	if f.after != nil {
		f.after.before = f.before
	}
	if f.before != nil {
		f.before.after = f.after
	} else {
		s.flows.first = f.after
	}
	f.before, f.after = nil, nil
	return f.cut
}

// judge asks p about f and cuts it if p does not allow it. flows.mu is held.
func (f *flow) judge(p *firewall.Policy) {
	d := p.Decide(f.name, f.port)
	why := ""
	switch {
	case f.cut != nil:
		return
	case !d.Allowed():
		why = string(d.Reason)
	case f.ech && !p.PassECH():
		why = string(firewall.ReasonECH)
	case d.Via != f.decision.Via: // the way it has taken is no longer the one to take
		why = "via"
	case admits(f.decision, f.upstream.Addr()) && !admits(d, f.upstream.Addr()):
		why = string(firewall.ReasonAddress)
	default:
		return
	}
	f.cut = &refusal.Refusal{Reason: firewall.ReasonPolicyChanged, Detail: "cut by a reloaded allowlist: " + why}
	if f.owner != nil {
		f.owner.kill()
		return
	}
	socket.ResetConn(f.client)
	socket.ResetConn(f.up)
}

func admits(d firewall.Decision, addr netip.Addr) bool {
	ok, _ := firewall.JudgeAnswer(d, []netip.Addr{addr})
	return ok
}
