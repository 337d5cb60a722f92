package decisionlog

import (
	"bytes"
	"sync"
	"sync/atomic"

	"sallyport/firewall"
	"sallyport/firewall/account"
)

// maxKept is the most memory that an empty backlog keeps for the next lines, in bytes.
const maxKept = 1 << 20

// A backlog has the lines that wait to be written, for a Writer and for a File alike. It is
// up, or down since a write failed: until one succeeds the gate denies what is new, and
// those denials are only counted. What waits is bounded, and denials take no more than
// half of the room.
type backlog struct {
	maxLines, maxBytes int  // that wait; 0 is no bound
	logLines           bool // the lines are those of the log, not records as JSON

	faults atomic.Int64 // writes that failed

	mu      sync.Mutex  // guards what follows, and writes of down
	down    atomic.Bool // the last write failed
	lines   []byte      // not written yet
	count   int         // of lines
	refused int64       // denials for want of the log, which are only counted
	lost    int64       // decisions that found no room
}

// Faults is how many writes have failed.
func (b *backlog) Faults() int64 { return b.faults.Load() }

// add puts the lines of records behind those that wait. It says whether there is anything
// to write for its caller, and how many bytes wait in all.
func (b *backlog) add(records []account.Record) (waits bool, size int) {
	b.mu.Lock()
	defer b.mu.Unlock() // also after a panic: all cells need it
	var head batchHead
	for i := range records {
		r := &records[i]
		if b.down.Load() && r.Reason == firewall.ReasonLog {
			b.refused += max(r.Count, 1)
			continue
		}
		waits = true
		if !b.room(r.Verdict) {
			b.lost += max(r.Count, 1)
			continue
		}
		if b.logLines {
			b.lines = head.appendLine(b.lines, r)
		} else {
			b.lines = appendRecord(b.lines, r)
		}
		b.count++
	}
	return waits, len(b.lines)
}

// room reports whether one more line may wait. b.mu is held.
func (b *backlog) room(v firewall.Verdict) bool {
	share := 1
	if v != firewall.Allow {
		share = 2
	}
	return (b.maxLines == 0 || b.count < b.maxLines/share) && (b.maxBytes == 0 || len(b.lines) < b.maxBytes/share)
}

// waiting returns the lines that wait. They stay as they are until written is called,
// whatever is added meanwhile; nobody else may call that.
func (b *backlog) waiting() (lines []byte, refused, lost int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.lines, b.refused, b.lost
}

// written takes off the first n bytes of the lines that wait, and those decisions without
// a line that somebody has been told of.
func (b *backlog) written(n int, refused, lost int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.count -= bytes.Count(b.lines[:n], []byte("\n"))
	rest := b.lines[n:]
	if len(rest) <= n { // or a long backlog would be moved for each piece of it
		rest = b.lines[:copy(b.lines, rest)]
	}
	if b.lines = rest; len(rest) == 0 && cap(rest) > maxKept {
		b.lines = nil
	}
	b.refused, b.lost = b.refused-refused, b.lost-lost
}

// fail notes that a write failed, and says whether it was the first to.
func (b *backlog) fail() (first bool) {
	b.faults.Add(1)
	b.mu.Lock()
	defer b.mu.Unlock()
	return !b.down.Swap(true)
}

// recover notes that writes succeed, and says whether they had not before.
func (b *backlog) recover() (was bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.down.Swap(false)
}

// recoverEmpty is recover where nothing waits; otherwise it changes nothing.
func (b *backlog) recoverEmpty() (empty, was bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.count > 0 || b.refused+b.lost > 0 {
		return false, false
	}
	return true, b.down.Swap(false)
}
