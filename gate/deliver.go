package gate

import (
	"sallyport/firewall"
	"sallyport/firewall/account"
	"sallyport/internal/contain"
)

// record enters one decision; flush comes after it.
func (l *lease) record(r account.Record) { l.enter([]account.Record{r}) }

// flush writes the lines of what was recorded. What was decided is done already;
// what could not be written is kept, and denies what is to be decided.
func (l *lease) flush() { _ = l.server.decisions.Flush() }

// deliver delivers decisions: to the receipt, the metrics, the file, the log and
// the streams. It returns when they are written, or the error of that. It
// completes the records, may move them, and keeps none of the text of their hosts,
// which may be a part of a request.
func (l *lease) deliver(records []account.Record) error {
	if !l.enter(records) {
		return nil
	}
	return l.server.decisions.Flush()
}

// enter is deliver but for the lines, which flush writes; false means that there are none
// to write.
func (l *lease) enter(records []account.Record) (waits bool) {
	l.complete(records)
	l.ledger.AddAll(records)
	l.server.Metrics.Decided(records)
	return l.put(l.limit.Pass(records))
}

// complete fills in what only the lease knows of its records, and the digest of the
// policy in force where none was asked.
func (l *lease) complete(records []account.Record) {
	policy := l.policy.Load()
	digest := policy.Digest()
	for i := range records {
		r := &records[i]
		r.Run, r.Cell, r.Policy = l.Run, l.id, l.Lease.Policy
		if r.Digest != "" {
			continue
		}
		r.Digest = digest
		if policy == nil && r.Reason == firewall.ReasonNotListed {
			r.Detail = policyGone
		}
	}
}

// put gives the file, the log and the streams what has a line.
func (l *lease) put(records []account.Record) (waits bool) {
	if len(records) == 0 {
		return false
	}
	s := l.server
	if s.File != nil {
		s.File.Add(records...)
	}
	waits = s.decisions.Add(records...)
	l.journal.Add(records...)
	s.all.Add(records...)
	return waits
}

// putShared puts and flushes a record that stands for many decisions, which are counted
// already.
func (l *lease) putShared(r account.Record) {
	defer contain.With(func(p *contain.Panic) { // it may be on a goroutine of the tally's, and would end all cells
		l.server.Log.Error("keeping a record panicked", "cell", l.id, "error", p.Words())
	})
	records := []account.Record{r}
	l.complete(records)
	l.put(records)
	l.flush()
}
