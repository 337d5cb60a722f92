package decisionlog

import (
	"sync"

	"sallyport/firewall/account"
)

// A Journal keeps the latest records. Any number of readers follow it, each at
// its own pace: one that falls behind by more than the journal holds loses the
// oldest and learns how many. Nobody waits for a reader.
type Journal struct {
	most int

	mu       sync.Mutex       // guards what follows
	records  []account.Record // the one with number n is at n % most
	next     uint64           // the number of the next record
	over     bool             // there will be no further ones
	complete bool             // ... because the run has ended
	changed  chan struct{}    // closed at the next change; nil if nobody waits
}

// NewJournal makes a journal of so many records.
func NewJournal(most int) *Journal { return &Journal{most: most} }

// Add puts records behind those that are there.
func (j *Journal) Add(records ...account.Record) {
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

// End says that no further record will come; complete, that none is missing.
// Only the first call counts.
func (j *Journal) End(complete bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if !j.over {
		j.over, j.complete = true, complete
		j.wake()
	}
}

// wake tells the readers that wait. j.mu is held.
func (j *Journal) wake() {
	if j.changed != nil {
		close(j.changed)
		j.changed = nil
	}
}

// A Batch is what a reader gets at a time.
type Batch struct {
	N      int    // records
	Next   uint64 // the number to go on with
	Missed uint64 // records that were lost before the first of these
	// With N == 0, Over says that there is nothing more to come and Complete that
	// the run has ended; otherwise Changed is closed when there is.
	Over, Complete bool
	Changed        <-chan struct{}
}

// Read copies records from number on into buf, which must not be empty.
func (j *Journal) Read(from uint64, buf []account.Record) Batch {
	j.mu.Lock()
	defer j.mu.Unlock()
	b := Batch{Next: from}
	if oldest := j.next - uint64(len(j.records)); from < oldest {
		b.Missed, b.Next = oldest-from, oldest
	}
	for ; b.N < len(buf) && b.Next < j.next; b.N++ {
		buf[b.N] = j.records[b.Next%uint64(j.most)]
		b.Next++
	}
	if b.N > 0 {
		return b
	}
	if b.Over, b.Complete = j.over, j.complete; !b.Over {
		if j.changed == nil {
			j.changed = make(chan struct{})
		}
		b.Changed = j.changed
	}
	return b
}

// Latest copies what the journal holds, the newest first.
func (j *Journal) Latest() []account.Record {
	j.mu.Lock()
	defer j.mu.Unlock()
	list := make([]account.Record, 0, len(j.records))
	for i := range uint64(len(j.records)) {
		list = append(list, j.records[(j.next-1-i)%uint64(j.most)])
	}
	return list
}
