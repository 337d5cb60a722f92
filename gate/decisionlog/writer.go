// Package decisionlog keeps the gate's decisions: a Writer makes lines of the log of them, a
// File has them on disk, a Journal keeps the latest for whoever follows a stream, and a
// Limit says which of them share a line. What cannot be written is kept and tried again;
// until then Writer and File are not Ready, and the gate denies.
package decisionlog

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"time"

	"sallyport/firewall/account"
)

const (
	// flushAt is how many bytes of lines are written without being told to.
	flushAt = 64 << 10
	// maxUnwritten bounds the lines that wait for a writer that fails, in bytes.
	// Denials take no more than half of it.
	maxUnwritten = 1 << 20
)

// A Writer writes decisions as the lines that log/slog's JSON handler would
// write of them, at a fraction of its cost: those of one batch of queries go to the
// writer in one piece. It has no timer and no goroutine. Whoever adds lines
// flushes them before it acts on the decision; while the writer blocks, so do they.
//
// What a writer that fails does not take is kept and tried again, and until then
// the log is not ready: the gate denies what is new, as with a File.
type Writer struct {
	w   io.Writer
	log *slog.Logger // gets the decisions if w is nil, and the log's own faults

	writing sync.Mutex // held while the lines are written, taken before mu; guards tried
	tried   time.Time
	backlog
}

// NewWriter makes a Writer to w; with a nil w, log gets the decisions, and the faults of
// the log in any case.
func NewWriter(w io.Writer, log *slog.Logger) *Writer {
	return &Writer{w: w, log: log, backlog: backlog{maxBytes: maxUnwritten, logLines: true}}
}

// errDown is what Flush says of lines that it does not try to write yet.
var errDown = errors.New("gate: decisions cannot be written")

// Add appends the lines of the records, which Flush writes. It returns false
// where there is nothing to flush: what is denied because nothing can be written
// waits for nobody.
func (d *Writer) Add(records ...account.Record) (waits bool) {
	if d.w == nil {
		for i := range records {
			d.log.LogAttrs(context.Background(), Level, "decision", records[i].LogAttrs()...)
		}
		return false
	}
	waits, size := d.backlog.add(records)
	if size >= flushAt {
		_ = d.Flush() // the caller's own, which follows, has the error
	}
	return waits
}

// Flush returns when every line that was added before is written. What could
// not be written stays for the next time.
func (d *Writer) Flush() error {
	if d.w == nil {
		return nil
	}
	d.writing.Lock()
	defer d.writing.Unlock()
	if d.down.Load() && time.Since(d.tried) < RetryAfter {
		return errDown
	}
	return d.write()
}

// Ready reports whether decisions can be written. While they cannot, it has what
// waits tried again now and then, and does not wait for that: it is asked on the
// loops of all cells. Close waits for a try, which holds d.writing.
func (d *Writer) Ready() bool {
	if !d.down.Load() {
		return true
	}
	if !d.writing.TryLock() { // somebody tries it just now, and may have to wait
		return false
	}
	if !d.down.Load() || time.Since(d.tried) < RetryAfter {
		d.writing.Unlock()
		return !d.down.Load()
	}
	go func() {
		defer d.writing.Unlock()
		_ = d.write() // notes its error
	}()
	return false
}

// write writes what waits. d.writing is held.
func (d *Writer) write() error {
	lines, refused, lost := d.waiting()
	if len(lines) > 0 {
		n, err := d.w.Write(lines)
		if err != nil {
			d.written(n, 0, 0)
			d.failed(err)
			return fmt.Errorf("gate: writing decisions: %w", err)
		}
	}
	d.written(len(lines), refused, lost)
	if d.recover() {
		d.log.Warn("decisions are written to the log again", "denied", refused, "lost", lost)
	}
	return nil
}

// failed notes that the log cannot be written. d.writing is held.
func (d *Writer) failed(err error) {
	d.tried = time.Now()
	if d.fail() {
		d.log.Error("decisions cannot be written to the log: everything is denied until they can", "error", err)
	}
}

// Close writes what waits, once more. An error says what is lost.
func (d *Writer) Close() error {
	if d.w == nil {
		return nil
	}
	d.writing.Lock()
	defer d.writing.Unlock()
	err := d.write()
	if err == nil {
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return fmt.Errorf("%w: %d decisions are lost, and %d denials were not written", err, int64(d.count)+d.lost, d.refused)
}
