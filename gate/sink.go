package gate

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"sallyport/firewall"
	"sallyport/firewall/account"
	"sallyport/gate/control"
)

// The bounds of a sink that cannot write.
const (
	// retryAfter is how long it waits between tries, which are its own: whoever
	// adds decisions does not wait for them.
	retryAfter = 100 * time.Millisecond
	// maxPending bounds the decisions that wait in memory: tunnels above all, which
	// were open before the fault showed. Denials take no more than half of it.
	maxPending = 16384
)

// A SinkSize bounds the file of decisions.
type SinkSize struct {
	Bytes int64 // of one file
	Files int   // that are kept, the current one among them
}

// A Sink appends decisions to a file, one JSON object a line, and rotates it:
// path is the current one, path.1 the one before. What it cannot write it keeps
// in memory and tries again, and until then it is not Ready: the gate denies what
// is new, so that nothing is allowed that is not written.
//
// It rotates on its own: the library for it (lumberjack) starts a goroutine that
// cannot be ended, and leaves half a line where the disk is full.
type Sink struct {
	path   string
	limits SinkSize
	log    *slog.Logger

	faults atomic.Int64 // writes that failed

	writing sync.Mutex // guards what follows; taken before mu
	file    *os.File   // nil if it must be opened
	size    int64
	out     []byte // for lines on their way

	mu      sync.Mutex  // guards what follows, and writes of down
	down    atomic.Bool // the last write failed
	pending [][]byte    // lines that were not written; only flush takes from it
	buf     []byte      // for one line
	refused int         // denials for want of the log, which are only counted
	lost    int         // decisions that found no room in pending

	retries sync.WaitGroup
	closing chan struct{}
}

// OpenSink opens or makes the file at path; log is told when it cannot be
// written, and when it can again.
func OpenSink(path string, limits SinkSize, log *slog.Logger) (*Sink, error) {
	if limits.Bytes < 1<<12 || limits.Files < 1 {
		return nil, fmt.Errorf("the decision log needs at least 4 KiB and one file, not %d bytes and %d files", limits.Bytes, limits.Files)
	}
	s := &Sink{path: path, limits: limits, log: log, closing: make(chan struct{})}
	if err := s.open(); err != nil {
		return nil, fmt.Errorf("the decision log: %w", err)
	}
	return s, nil
}

// open opens the file to append to it. s.writing is held, or nobody has s yet.
func (s *Sink) open() error {
	f, err := os.OpenFile(s.path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	info, err := f.Stat()
	if err != nil {
		f.Close()
		return err
	}
	s.file, s.size = f, info.Size()
	return nil
}

// Ready reports whether decisions can be written. It never waits.
func (s *Sink) Ready() bool { return !s.down.Load() }

// Add writes decisions, all at once, or keeps them until they can be written.
func (s *Sink) Add(records ...account.Record) {
	if s.keepAll(records) {
		return // retry writes them
	}
	s.writing.Lock()
	defer s.writing.Unlock()
	if s.Ready() {
		s.flush()
	}
}

// retry tries to write what waits, now and then, until it has. It runs while s is
// down.
func (s *Sink) retry() {
	for {
		select {
		case <-s.closing:
			return
		case <-time.After(retryAfter):
		}
		s.writing.Lock()
		done := s.flush()
		s.writing.Unlock()
		if done {
			return
		}
	}
}

// keepAll puts decisions to those that wait, and says whether s is down.
func (s *Sink) keepAll(records []account.Record) (down bool) {
	s.mu.Lock()
	defer s.mu.Unlock() // also after a panic: all cells need it
	for i := range records {
		s.keep(&records[i])
	}
	return s.down.Load()
}

// keep puts a decision to those that wait. s.mu is held.
func (s *Sink) keep(r *account.Record) {
	switch {
	case s.down.Load() && r.Reason == firewall.ReasonLog:
		s.refused += int(max(r.Count, 1))
	case len(s.pending) >= maxPending, len(s.pending) >= maxPending/2 && r.Verdict != firewall.Allow:
		s.lost += int(max(r.Count, 1))
	default:
		s.buf = appendRecord(s.buf[:0], r)
		s.pending = append(s.pending, bytes.Clone(s.buf))
	}
}

// flush writes what waits, and says whether nothing is left. s.writing is held.
func (s *Sink) flush() bool {
	for {
		s.mu.Lock()
		lines, refused, lost := s.pending, s.refused, s.lost
		if len(lines)+refused+lost == 0 {
			s.pending = nil
			was := s.down.Swap(false)
			s.mu.Unlock()
			if was {
				s.log.Info("decisions are written to their file again", "path", s.path)
			}
			return true
		}
		s.mu.Unlock()

		var n int
		var err error
		if len(lines) > 0 {
			n, err = s.write(lines)
			refused, lost = 0, 0
		} else {
			err = s.writeDropped(refused, lost)
		}
		if err != nil {
			s.fail(err)
			return false
		}
		s.mu.Lock()
		s.pending, s.refused, s.lost = s.pending[n:], s.refused-refused, s.lost-lost
		s.mu.Unlock()
	}
}

// writeDropped writes how many decisions have no line. s.writing is held.
func (s *Sink) writeDropped(refused, lost int) error {
	line, err := json.Marshal(account.Record{Time: time.Now(), Kind: control.KindDropped, Detail: fmt.Sprintf(
		"%d decisions were denied while this log could not be written, and %d found no room to wait", refused, lost)})
	if err == nil {
		_, err = s.write([][]byte{append(line, '\n')})
	}
	return err
}

// write writes as many of the lines as the file has room for, but at least one,
// and says how many, or writes none. s.writing is held.
func (s *Sink) write(lines [][]byte) (n int, err error) {
	if s.file == nil {
		if err := s.open(); err != nil {
			return 0, err
		}
	}
	if s.size > 0 && s.size+int64(len(lines[0])) > s.limits.Bytes {
		if err := s.rotate(); err != nil {
			return 0, err
		}
	}
	s.out = s.out[:0]
	for _, line := range lines {
		size := len(s.out) + len(line)
		if n > 0 && (s.size+int64(size) > s.limits.Bytes || size > flushAt) {
			break
		}
		s.out = append(s.out, line...)
		n++
	}
	wrote, err := s.file.Write(s.out)
	if err != nil {
		if wrote > 0 { // no half lines; where that fails, too, the file is what it is
			_ = s.file.Truncate(s.size)
		}
		return 0, err
	}
	s.size += int64(wrote)
	return n, nil
}

// rotate makes the current file the first of the older ones. s.writing is held.
func (s *Sink) rotate() error {
	s.file.Close()
	s.file = nil
	for i := s.limits.Files - 1; i > 0; i-- {
		from := s.path
		if i > 1 {
			from = fmt.Sprintf("%s.%d", s.path, i-1)
		}
		if err := os.Rename(from, fmt.Sprintf("%s.%d", s.path, i)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	if s.limits.Files == 1 {
		if err := os.Truncate(s.path, 0); err != nil {
			return err
		}
	}
	return s.open()
}

// fail notes that the log cannot be written. The file is opened anew at the next
// try: somebody may have put another one, or another disk, in its place. s.writing
// is held.
func (s *Sink) fail(err error) {
	s.faults.Add(1)
	s.mu.Lock()
	was := s.down.Swap(true)
	s.mu.Unlock()
	if !was {
		s.log.Error("decisions cannot be written to their file: everything is denied until they can", "path", s.path, "error", err)
		s.retries.Go(s.retry)
	}
	if s.file != nil {
		s.file.Close()
		s.file = nil
	}
}

// Close writes what waits and closes the file. An error says what was lost. It
// must be called once, and last.
func (s *Sink) Close() error {
	close(s.closing)
	s.retries.Wait()
	s.writing.Lock()
	defer s.writing.Unlock()
	if !s.flush() {
		return fmt.Errorf("the decision log cannot be written: %d decisions are lost, and %d denials were not written",
			len(s.pending)+s.lost, s.refused)
	}
	if s.file == nil {
		return nil
	}
	err := s.file.Close()
	s.file = nil
	return err
}
