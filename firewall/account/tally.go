package account

import (
	"fmt"
	"net/netip"
	"sync"
	"time"

	"sallyport/firewall"
)

// tallyEvery is the least time between two records of one Tally.
const tallyEvery = time.Second

// A Tally counts events of one sort that a sandbox can cause at any rate it likes,
// such as connections over a limit, and makes a record of them at most once a
// second: the first at once, those that follow together when the next one is due,
// the rest at End. None is lost: Record.Count says how many each record stands for.
// It is safe for concurrent use.
type Tally struct {
	of     Record
	what   func(n int64) string
	record func(Record)

	recording sync.Mutex // held while a record is made; taken before mu

	mu      sync.Mutex // guards what follows
	last    time.Time  // of the last record
	pending int64      // events since then
	client  netip.AddrPort
	due     *time.Timer // makes the next record; nil if none is pending
}

// NewTally returns a tally of decisions that are like of, denials unless it says
// otherwise, but for time, client and count; what(n) is the detail for n of them.
// record gets the records, on the goroutine of an event or on one of the tally's
// own, and none after End.
func NewTally(of Record, what func(n int64) string, record func(Record)) *Tally {
	if of.Verdict == "" {
		of.Verdict = firewall.Deny
	}
	return &Tally{of: of, what: what, record: record}
}

// Numbered puts the number of events in front of what they are.
func Numbered(what string) func(n int64) string {
	return func(n int64) string { return fmt.Sprintf("%d %s", n, what) }
}

// Add counts one event that client caused.
func (t *Tally) Add(client netip.AddrPort) {
	t.mu.Lock()
	t.pending++
	t.client = client
	wait := tallyEvery - time.Since(t.last)
	now := wait <= 0 && t.due == nil
	if !now && t.due == nil {
		t.due = time.AfterFunc(wait, t.flush)
	}
	t.mu.Unlock()
	if now {
		t.flush()
	}
}

// End records what has no record yet. No event may be added from then on.
func (t *Tally) End() {
	t.mu.Lock()
	if t.due != nil {
		t.due.Stop()
	}
	t.mu.Unlock()
	t.flush()
}

// flush makes a record of what is pending.
func (t *Tally) flush() {
	t.recording.Lock()
	defer t.recording.Unlock()
	t.mu.Lock()
	n, r := t.pending, t.of
	r.Client, r.Time = t.client, time.Now()
	t.pending, t.due = 0, nil
	if n > 0 {
		t.last = r.Time
	}
	t.mu.Unlock()
	if n == 0 {
		return
	}
	if r.Detail = t.what(n); n > 1 {
		r.Count = n
	}
	t.record(r)
}
