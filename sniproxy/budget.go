package sniproxy

import (
	"errors"
	"fmt"

	"sallyport/firewall"
	"sallyport/firewall/account"
	"sallyport/sniproxy/refusal"
)

// errBudget ends an exchange of HTTP; the meter of its connection knows why.
var errBudget = errors.New("over budget")

// meter is the account on which the server counts.
func (s *Server) meter() *account.Meter {
	s.metered.Do(func() {
		if s.Meter == nil {
			s.Meter = account.NewMeter(s.policy().Budget())
		}
	})
	return s.Meter
}

// enter counts a connection in, unless there is no room or no budget for it. The
// caller calls leave when it ends.
func (s *Server) enter() *refusal.Refusal {
	limit := int64(s.MaxConns)
	if limit <= 0 {
		limit = defaultMaxConns
	}
	if s.open.Add(1) > limit {
		s.open.Add(-1)
		return &refusal.Refusal{Reason: firewall.ReasonLimit, Detail: fmt.Sprintf("more than %d connections at once", limit)}
	}
	if over := s.meter().Open(); over != "" {
		s.open.Add(-1)
		return refusal.OverBudget(over)
	}
	return nil
}

func (s *Server) leave() {
	s.meter().Close()
	s.open.Add(-1)
}

// spent is the refusal of a connection that its meter has cut, or nil.
func spent(m *account.ConnMeter) *refusal.Refusal {
	if over := m.Over(); over != "" {
		return refusal.OverBudget(over)
	}
	return nil
}

// Open returns how many connections of clients are open, over both services.
func (s *Server) Open() int64 { return s.open.Load() }
