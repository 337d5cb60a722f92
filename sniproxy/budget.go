package sniproxy

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"sallyport/firewall"
	"sallyport/firewall/account"
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
func (s *Server) enter() *refusal {
	limit := int64(s.MaxConns)
	if limit <= 0 {
		limit = defaultMaxConns
	}
	if s.open.Add(1) > limit {
		s.open.Add(-1)
		return &refusal{reason: firewall.ReasonLimit, detail: fmt.Sprintf("more than %d connections at once", limit)}
	}
	if over := s.meter().Open(); over != "" {
		s.open.Add(-1)
		return overBudget(over)
	}
	return nil
}

func (s *Server) leave() {
	s.meter().Close()
	s.open.Add(-1)
}

// reach resolves and dials the host of f, if the budget has room for its name.
// Only then does anything of the name reach the outside.
func (v *service) reach(ctx context.Context, f *flow) (r *refusal) {
	var over string
	if f.meter, over = v.meter().Reach(f.name, f.decision); over != "" {
		return overBudget(over)
	}
	f.up, f.upstream, r = v.connect(ctx, f.name, f.port, f.decision)
	return r
}

// spent is the refusal of a connection that its meter has cut, or nil.
func spent(m *account.ConnMeter) *refusal {
	if over := m.Over(); over != "" {
		return overBudget(over)
	}
	return nil
}

func overBudget(detail string) *refusal {
	return &refusal{reason: firewall.ReasonBudget, detail: detail, alert: alertAccessDenied, status: http.StatusForbidden}
}
