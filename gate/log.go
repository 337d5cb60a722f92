package gate

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"sallyport/firewall"
	"sallyport/firewall/account"
)

const (
	// flushAt is how many bytes of lines are written without being told to.
	flushAt = 64 << 10
	// maxUnwritten bounds the lines that wait for a writer that fails, in bytes.
	// Denials take no more than half of it.
	maxUnwritten = 1 << 20
)

// A decisionLog writes decisions as the lines that log/slog's JSON handler would
// write of them, at a fraction of its cost: those of one batch of queries go to the
// writer in one piece. It has no timer and no goroutine. Whoever adds lines
// flushes them before it acts on the decision; while the writer blocks, so do they.
//
// What a writer that fails does not take is kept and tried again, and until then
// the log is not ready: the gate denies what is new, as with a Sink.
type decisionLog struct {
	w   io.Writer
	log *slog.Logger // gets the decisions if w is nil, and the log's own faults

	down   atomic.Bool
	faults atomic.Int64 // writes that failed

	writing sync.Mutex // held while the lines are written, taken before mu; guards tried
	tried   time.Time

	mu      sync.Mutex // guards what follows
	lines   []byte     // not written yet
	spare   []byte     // what lines was before
	refused int64      // denials for want of the log, which are only counted
	lost    int64      // decisions whose lines found no room
}

// errDown is what flush says of lines that it does not try to write yet.
var errDown = errors.New("gate: decisions cannot be written")

// add appends the lines of the records, which flush writes. It returns false
// where there is nothing to flush: what is denied because nothing can be written
// waits for nobody.
func (d *decisionLog) add(records ...account.Record) (waits bool) {
	if d.w == nil {
		for i := range records {
			d.log.LogAttrs(context.Background(), levelDecision, "decision", records[i].LogAttrs()...)
		}
		return false
	}
	waits, full := d.keep(records)
	if full {
		_ = d.flush() // the caller's own, which follows, has the error
	}
	return waits
}

// keep is add without the end of it; full says that it is time to write.
func (d *decisionLog) keep(records []account.Record) (waits, full bool) {
	d.mu.Lock()
	defer d.mu.Unlock() // also after a panic: all cells need it
	var head batchHead
	down := d.down.Load()
	for i := range records {
		r := &records[i]
		if down && r.Reason == firewall.ReasonLog {
			d.refused += max(r.Count, 1)
			continue
		}
		waits = true
		if n := len(d.lines); n >= maxUnwritten/2 && (n >= maxUnwritten || r.Verdict != firewall.Allow) {
			d.lost += max(r.Count, 1)
			continue
		}
		d.lines = head.appendLine(d.lines, r)
	}
	return waits, len(d.lines) >= flushAt
}

// flush returns when every line that was added before is written. What could
// not be written stays for the next time.
func (d *decisionLog) flush() error {
	if d.w == nil {
		return nil
	}
	d.writing.Lock()
	defer d.writing.Unlock()
	if d.down.Load() && time.Since(d.tried) < retryAfter {
		return errDown
	}
	return d.write()
}

// ready reports whether decisions can be written. While they cannot, it has what
// waits tried again now and then, and does not wait for that: it is asked on the
// loops of all cells. close waits for a try, which holds d.writing.
func (d *decisionLog) ready() bool {
	if !d.down.Load() {
		return true
	}
	if !d.writing.TryLock() { // somebody tries it just now, and may have to wait
		return false
	}
	if !d.down.Load() || time.Since(d.tried) < retryAfter {
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
func (d *decisionLog) write() error {
	d.mu.Lock()
	lines := d.lines
	d.lines, d.spare = d.spare[:0], nil
	d.mu.Unlock()
	if len(lines) > 0 {
		if n, err := d.w.Write(lines); err != nil {
			d.fail(lines[n:], err)
			return fmt.Errorf("gate: writing decisions: %w", err)
		}
	}
	d.mu.Lock()
	d.spare = lines
	refused, lost := d.refused, d.lost
	d.refused, d.lost = 0, 0
	d.mu.Unlock()
	if d.down.Swap(false) {
		d.log.Warn("decisions are written to the log again", "denied", refused, "lost", lost)
	}
	return nil
}

// close writes what waits, once more. An error says what is lost.
func (d *decisionLog) close() error {
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
	return fmt.Errorf("%w: %d decisions are lost, and %d denials were not written",
		err, int64(bytes.Count(d.lines, []byte("\n")))+d.lost, d.refused)
}

// fail notes that the log cannot be written, and keeps what is left of the lines.
// d.writing is held.
func (d *decisionLog) fail(left []byte, err error) {
	d.mu.Lock()
	d.lines = append(left, d.lines...)
	d.mu.Unlock()
	d.tried = time.Now()
	d.faults.Add(1)
	if !d.down.Swap(true) {
		d.log.Error("decisions cannot be written to the log: everything is denied until they can", "error", err)
	}
}

// LogWriter returns what writes to out at the least cost where out is a pipe, as
// under an engine, and else out itself. Each Write is in one piece, also where out's
// reader is slow, among those of the writer that it returns. Only what was written
// is counted, and the errors are those of out.
func LogWriter(out io.Writer) io.Writer {
	file, ok := out.(*os.File)
	if !ok {
		return out
	}
	if info, err := file.Stat(); err != nil || info.Mode().Type() != os.ModeNamedPipe {
		return out // a call on anything else may wait in the kernel, whatever its flags say
	}
	p := &pipe{File: file, quick: -1}
	raw, err := file.SyscallConn()
	if err == nil {
		err = raw.Control(func(fd uintptr) {
			// Opened anew: the flags of the descriptor are shared with whoever made it.
			p.quick, err = unix.Open("/proc/self/fd/"+strconv.Itoa(int(fd)), unix.O_WRONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
		})
	}
	if err != nil || p.quick < 0 {
		return out
	}
	return p
}

// A pipe writes what fits without telling the Go runtime. A call of which it knows
// wakes its monitor thread, where the program was idle, and for one line that costs
// more than to write it.
type pipe struct {
	*os.File // waits for what does not fit
	quick    int

	mu sync.Mutex // held while a Write is under way
}

func (p *pipe) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(b) == 0 {
		return 0, nil
	}
	n, _, errno := unix.RawSyscall(unix.SYS_WRITE, uintptr(p.quick), uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)))
	if errno != 0 {
		n = 0
	}
	if int(n) == len(b) {
		return len(b), nil
	}
	more, err := p.File.Write(b[n:])
	return int(n) + more, err
}
