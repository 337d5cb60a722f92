package gate

import "sallyport/gate/decisionlog"

// The records that are kept for the readers of a stream: of one run, and of all.
const (
	runRecords = 1024
	allRecords = 4096
)

// A runJournal is the journal of a run that has leases.
type runJournal struct {
	*decisionlog.Journal
	leases int
}

// joinRun returns the journal of a run that gets a lease. s.mu is held.
func (s *server) joinRun(run string) *decisionlog.Journal {
	j := s.runs[run]
	if j == nil {
		j = &runJournal{Journal: decisionlog.NewJournal(runRecords)}
		s.runs[run] = j
	}
	j.leases++
	return j.Journal
}

// leaveRun ends the journal of a run whose last lease has ended. s.mu is held.
func (s *server) leaveRun(run string) {
	j := s.runs[run]
	if j.leases--; j.leases == 0 {
		delete(s.runs, run)
		j.End(true)
	}
}

// journalOf returns the journal of a run, or that of all for "", or nil.
func (s *server) journalOf(run string) *decisionlog.Journal {
	if run == "" {
		return s.all
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if j := s.runs[run]; j != nil {
		return j.Journal
	}
	return nil
}
