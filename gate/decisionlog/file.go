package decisionlog

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"sync"
	"time"

	"sallyport/firewall/account"
	"sallyport/gate/control"
)

// The bounds of a file that cannot write.
const (
	// RetryAfter is how long it waits between tries, which are its own: whoever
	// adds decisions does not wait for them.
	RetryAfter = 100 * time.Millisecond
	// maxPending bounds the decisions that wait in memory: tunnels above all, which
	// were open before the fault showed. Denials take no more than half of it.
	maxPending = 16384
)

// A FileSize bounds the file of decisions.
type FileSize struct {
	Bytes int64 // of one file
	Files int   // that are kept, the current one among them
}

// A File appends decisions to a file, one JSON object a line, and rotates it:
// path is the current one, path.1 the one before. What it cannot write it keeps
// in memory and tries again, and until then it is not Ready: the gate denies what
// is new, so that nothing is allowed that is not written.
//
// It rotates on its own: the library for it (lumberjack) starts a goroutine that
// cannot be ended, and leaves half a line where the disk is full.
type File struct {
	path   string
	limits FileSize
	log    *slog.Logger

	writing sync.Mutex // guards what follows; taken before mu
	file    *os.File   // nil if it must be opened
	size    int64

	retries sync.WaitGroup
	closing chan struct{}
	backlog
}

// OpenFile opens or makes the file at path; log is told when it cannot be
// written, and when it can again.
func OpenFile(path string, limits FileSize, log *slog.Logger) (*File, error) {
	if limits.Bytes < 1<<12 || limits.Files < 1 {
		return nil, fmt.Errorf("the decision log needs at least 4 KiB and one file, not %d bytes and %d files", limits.Bytes, limits.Files)
	}
	f := &File{path: path, limits: limits, log: log, closing: make(chan struct{}), backlog: backlog{maxLines: maxPending}}
	if err := f.open(); err != nil {
		return nil, fmt.Errorf("the decision log: %w", err)
	}
	return f, nil
}

// open opens the file to append to it. f.writing is held, or nobody has it yet.
func (f *File) open() error {
	file, err := os.OpenFile(f.path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	info, err := file.Stat()
	if err != nil {
		file.Close()
		return err
	}
	f.file, f.size = file, info.Size()
	return nil
}

// Path is where the file lies.
func (f *File) Path() string { return f.path }

// Ready reports whether decisions can be written. It never waits.
func (f *File) Ready() bool { return !f.down.Load() }

// Add writes decisions, all at once, or keeps them until they can be written.
func (f *File) Add(records ...account.Record) {
	f.backlog.add(records)
	if !f.Ready() {
		return // retry writes them
	}
	f.writing.Lock()
	defer f.writing.Unlock()
	if f.Ready() {
		f.flush()
	}
}

// retry tries to write what waits, now and then, until it has. It runs while the file is
// down.
func (f *File) retry() {
	for {
		select {
		case <-f.closing:
			return
		case <-time.After(RetryAfter):
		}
		f.writing.Lock()
		done := f.flush()
		f.writing.Unlock()
		if done {
			return
		}
	}
}

// flush writes what waits, and says whether nothing is left. f.writing is held.
func (f *File) flush() bool {
	for {
		if empty, was := f.recoverEmpty(); empty {
			if was {
				f.log.Info("decisions are written to their file again", "path", f.path)
			}
			return true
		}
		lines, refused, lost := f.waiting()
		n, err := 0, error(nil)
		if len(lines) > 0 {
			n, err = f.write(lines)
			refused, lost = 0, 0
		} else {
			err = f.writeDropped(refused, lost)
		}
		if err != nil {
			f.failed(err)
			return false
		}
		f.written(n, refused, lost)
	}
}

// writeDropped writes how many decisions have no line. f.writing is held.
func (f *File) writeDropped(refused, lost int64) error {
	line, err := json.Marshal(account.Record{Time: time.Now(), Kind: control.KindDropped, Detail: fmt.Sprintf(
		"%d decisions were denied while this log could not be written, and %d found no room to wait", refused, lost)})
	if err == nil {
		_, err = f.write(append(line, '\n'))
	}
	return err
}

// write writes as many of the lines as the file has room for, but at least one,
// and says how many bytes that is, or writes none. f.writing is held.
func (f *File) write(lines []byte) (n int, err error) {
	if f.file == nil {
		if err := f.open(); err != nil {
			return 0, err
		}
	}
	if first := lineLength(lines); f.size > 0 && f.size+int64(first) > f.limits.Bytes {
		if err := f.rotate(); err != nil {
			return 0, err
		}
	}
	for n < len(lines) {
		next := n + lineLength(lines[n:])
		if n > 0 && (f.size+int64(next) > f.limits.Bytes || next > flushAt) {
			break
		}
		n = next
	}
	wrote, err := f.file.Write(lines[:n])
	if err != nil {
		if wrote > 0 { // no half lines; where that fails, too, the file is what it is
			_ = f.file.Truncate(f.size)
		}
		return 0, err
	}
	f.size += int64(wrote)
	return n, nil
}

// lineLength is the length of the first line, its end included.
func lineLength(lines []byte) int { return bytes.IndexByte(lines, '\n') + 1 }

// rotate makes the current file the first of the older ones. f.writing is held.
func (f *File) rotate() error {
	f.file.Close()
	f.file = nil
	for i := f.limits.Files - 1; i > 0; i-- {
		from := f.path
		if i > 1 {
			from = fmt.Sprintf("%s.%d", f.path, i-1)
		}
		if err := os.Rename(from, fmt.Sprintf("%s.%d", f.path, i)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	if f.limits.Files == 1 {
		if err := os.Truncate(f.path, 0); err != nil {
			return err
		}
	}
	return f.open()
}

// failed notes that the file cannot be written. It is opened anew at the next
// try: somebody may have put another one, or another disk, in its place. f.writing
// is held.
func (f *File) failed(err error) {
	if f.fail() {
		f.log.Error("decisions cannot be written to their file: everything is denied until they can", "path", f.path, "error", err)
		f.retries.Go(f.retry)
	}
	if f.file != nil {
		f.file.Close()
		f.file = nil
	}
}

// Close writes what waits and closes the file. An error says what was lost. It
// must be called once, and last.
func (f *File) Close() error {
	close(f.closing)
	f.retries.Wait()
	f.writing.Lock()
	defer f.writing.Unlock()
	if !f.flush() {
		return fmt.Errorf("the decision log cannot be written: %d decisions are lost, and %d denials were not written",
			int64(f.count)+f.lost, f.refused)
	}
	if f.file == nil {
		return nil
	}
	err := f.file.Close()
	f.file = nil
	return err
}
