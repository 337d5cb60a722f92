package gate

import (
	"sync"

	"sallyport/firewall/account"
)

// The records that are kept for the readers of a stream: of one run, and of all.
const (
	runRecords = 1024
	allRecords = 4096
)

// A journal keeps the latest records. Any number of readers follow it, each at
// its own pace: one that falls behind by more than the journal holds loses the
// oldest and learns how many. Nobody waits for a reader.
type journal struct {
	most int

	mu       sync.Mutex       // guards what follows
	records  []account.Record // the one with number n is at n % most
	next     uint64           // the number of the next record
	over     bool             // there will be no further ones
	complete bool             // ... because the run has ended
	changed  chan struct{}    // closed at the next change; nil if nobody waits
}

func newJournal(most int) *journal { return &journal{most: most} }

func (j *journal) add(records ...account.Record) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for i := range records {
		if len(j.records) < j.most {
			j.records = append(j.records, records[i])
		} else {
			j.records[j.next%uint64(j.most)] = records[i]
		}
		j.next++
	}
	j.wake()
}

// end says that no further record will come; complete, that none is missing.
// Only the first call counts.
func (j *journal) end(complete bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if !j.over {
		j.over, j.complete = true, complete
		j.wake()
	}
}

// wake tells the readers that wait. j.mu is held.
func (j *journal) wake() {
	if j.changed != nil {
		close(j.changed)
		j.changed = nil
	}
}

// A batch is what a reader gets at a time.
type batch struct {
	n      int    // records
	next   uint64 // the number to go on with
	missed uint64 // records that were lost before the first of these
	// With n == 0, over says that there is nothing more to come and complete that
	// the run has ended; otherwise changed is closed when there is.
	over, complete bool
	changed        <-chan struct{}
}

// read copies records from number on into buf, which must not be empty.
func (j *journal) read(from uint64, buf []account.Record) batch {
	j.mu.Lock()
	defer j.mu.Unlock()
	b := batch{next: from}
	if oldest := j.next - uint64(len(j.records)); from < oldest {
		b.missed, b.next = oldest-from, oldest
	}
	for ; b.n < len(buf) && b.next < j.next; b.n++ {
		buf[b.n] = j.records[b.next%uint64(j.most)]
		b.next++
	}
	if b.n > 0 {
		return b
	}
	if b.over, b.complete = j.over, j.complete; !b.over {
		if j.changed == nil {
			j.changed = make(chan struct{})
		}
		b.changed = j.changed
	}
	return b
}

// A runJournal is the journal of a run that has leases.
type runJournal struct {
	*journal
	leases int
}

// joinRun returns the journal of a run that gets a lease. s.mu is held.
func (s *server) joinRun(run string) *journal {
	j := s.runs[run]
	if j == nil {
		j = &runJournal{journal: newJournal(runRecords)}
		s.runs[run] = j
	}
	j.leases++
	return j.journal
}

// leaveRun ends the journal of a run whose last lease has ended. s.mu is held.
func (s *server) leaveRun(run string) {
	j := s.runs[run]
	if j.leases--; j.leases == 0 {
		delete(s.runs, run)
		j.end(true)
	}
}

// journalOf returns the journal of a run, or that of all for "", or nil.
func (s *server) journalOf(run string) *journal {
	if run == "" {
		return s.all
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if j := s.runs[run]; j != nil {
		return j.journal
	}
	return nil
}
