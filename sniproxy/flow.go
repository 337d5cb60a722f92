package sniproxy

import (
	"net"
	"net/netip"
	"sync"

	"sallyport/firewall"
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
	client, up *net.TCPConn

	meter *firewall.ConnMeter // of the connection to upstream

	cut *refusal // why a change of policy has cut it; guarded by flows.mu
}

// flows are those of a Server that are under way.
type flows struct {
	mu   sync.Mutex // guards open, and the cut of each
	open map[*flow]struct{}
}

// policy is the one of this moment.
func (s *Server) policy() *firewall.Policy {
	if s.Current != nil {
		return s.Current()
	}
	return s.Policy
}

// PolicyChanged judges everything that is under way by the policy that Current
// gives now. What that no longer allows is cut, and its record says so; the rest
// goes on undisturbed. A connection that is just being judged by the policy before
// is judged again before a byte of it leaves.
func (s *Server) PolicyChanged() {
	s.flows.mu.Lock()
	defer s.flows.mu.Unlock()
	p := s.policy()
	s.meter().SetBudget(p.Budget())
	for f := range s.flows.open {
		f.judge(p)
	}
}

// begin makes f one that PolicyChanged judges. The caller calls end with it.
func (s *Server) begin(f *flow) {
	s.flows.mu.Lock()
	defer s.flows.mu.Unlock()
	if s.flows.open == nil {
		s.flows.open = make(map[*flow]struct{})
	}
	s.flows.open[f] = struct{}{}
	if p := s.policy(); p != f.policy {
		f.judge(p)
	}
}

// end forgets f and returns why it was cut, or nil.
func (s *Server) end(f *flow) *refusal {
	s.flows.mu.Lock()
	defer s.flows.mu.Unlock()
	delete(s.flows.open, f)
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
	f.cut = &refusal{reason: firewall.ReasonPolicyChanged, detail: "cut by a reloaded allowlist: " + why}
	reset(f.client)
	reset(f.up)
}

func admits(d firewall.Decision, addr netip.Addr) bool {
	ok, _ := firewall.JudgeAnswer(d, []netip.Addr{addr})
	return ok
}
