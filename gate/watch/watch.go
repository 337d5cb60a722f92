// Package watch has the file of the allowlist and those that count with it, and says when
// they have changed: by events of the file system, by a look now and then, and once
// whoever saves a file has done so.
package watch

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"

	"sallyport/firewall/allowlist"
)

const (
	// A file is read once nothing has been heard of it for quietTime and it is the
	// same sureTime later, or after lastMoment: an editor saves in several steps, and
	// what is there in between may be half a file that is right by itself.
	quietTime  = 200 * time.Millisecond
	sureTime   = 100 * time.Millisecond
	lastMoment = 2 * time.Second
	// pollEvery finds a change that no event told of: a directory that was
	// replaced, a file system without events.
	pollEvery = 5 * time.Second
	// maxSum is more than an allowlist may have, in bytes.
	maxSum = 4 << 20
)

// Files are the file of the allowlist, and those that count with it. The fields must not
// change.
type Files struct {
	Path   string
	Beside []string // an empty path is none

	mu   sync.Mutex // guards seen
	seen string     // the sum of what was last loaded
}

// Load reads and checks the file of the allowlist.
func (f *Files) Load() (*allowlist.File, error) {
	// The sum first: what changes in between differs from it, and is loaded again.
	sum := f.sum()
	file, err := allowlist.Load(f.Path)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.seen = sum
	return file, err
}

// Changed reports whether a file is another one than was last loaded, right or
// wrong.
func (f *Files) Changed() bool {
	sum := f.sum()
	f.mu.Lock()
	defer f.mu.Unlock()
	return sum != f.seen
}

// sum identifies the content of the files, or what is wrong with reading them.
func (f *Files) sum() string {
	sum := sumOf(f.Path)
	for _, path := range f.Beside {
		if path != "" {
			sum += " " + sumOf(path)
		}
	}
	return sum
}

func sumOf(path string) string {
	file, err := allowlist.Open(path)
	if err != nil {
		return err.Error()
	}
	defer file.Close()
	h := sha256.New()
	if _, err := io.Copy(h, io.LimitReader(file, maxSum)); err != nil {
		return err.Error()
	}
	return fmt.Sprintf("%x", h.Sum(nil))
}

// Watch calls reload each time a file has changed and each time hangup gets a
// signal, until ctx ends. It watches the directory: to save a file, most editors
// put another one in its place.
func (f *Files) Watch(ctx context.Context, hangup <-chan os.Signal, reload func(), log *slog.Logger) {
	w, err := fsnotify.NewWatcher()
	var events <-chan fsnotify.Event
	var faults <-chan error
	if err != nil {
		log.Warn("cannot watch the allowlist, looking at it now and then", "every", pollEvery.String(), "error", err)
	} else {
		defer w.Close()
		events, faults = w.Events, w.Errors
		f.follow(w, log)
	}
	poll := time.NewTicker(pollEvery)
	defer poll.Stop()
	var save saving
	for {
		select {
		case <-ctx.Done():
			return
		case <-hangup:
			reload()
		case <-events:
			save.heard()
		case <-faults: // events were lost
			save.heard()
		case <-poll.C:
			if w != nil {
				f.follow(w, log)
			}
			if save.next == nil && f.Changed() {
				save.heard()
			}
		case <-save.next:
			if save.done(f.sum) && f.Changed() {
				reload()
			}
		}
	}
}

// A saving is a save that may be under way; the zero value is none.
type saving struct {
	next  <-chan time.Time // when to look; nil if nothing is under way
	since time.Time        // when it was first heard of
	sum   string           // of the files at the last look
}

// heard notes that something has happened to the files.
func (s *saving) heard() {
	if s.next == nil {
		*s = saving{since: time.Now()}
	}
	s.wait(quietTime)
}

func (s *saving) wait(d time.Duration) {
	s.next = time.After(min(d, lastMoment-time.Since(s.since)))
}

// done looks at the files and reports whether the save has ended.
func (s *saving) done(sum func() string) bool {
	now := sum()
	if now != s.sum && time.Since(s.since) < lastMoment {
		s.sum = now
		s.wait(sureTime)
		return false
	}
	s.next = nil
	return true
}

// follow watches the file's directory and, where the path is a link, that of the
// file it leads to. What is watched already stays so.
func (f *Files) follow(w *fsnotify.Watcher, log *slog.Logger) {
	dirs := []string{filepath.Dir(f.Path)}
	if real, err := filepath.EvalSymlinks(f.Path); err == nil && filepath.Dir(real) != dirs[0] {
		dirs = append(dirs, filepath.Dir(real))
	}
	for _, dir := range dirs {
		if err := w.Add(dir); err != nil {
			log.Warn("cannot watch the allowlist's directory, looking at it now and then",
				"dir", dir, "every", pollEvery.String(), "error", err)
		}
	}
}
