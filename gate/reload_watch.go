package gate

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

	"sallyport/firewall"
)

const (
	// settleTime lets a save end before the file is read: an editor writes in
	// several steps, and some take the file away in between.
	settleTime = 100 * time.Millisecond
	// pollEvery finds a change that no event told of: a directory that was
	// replaced, a file system without events.
	pollEvery = 5 * time.Second
	// maxSum is more than an allowlist may have, in bytes.
	maxSum = 4 << 20
)

// A source is the file of the allowlist, and those that count with it.
type source struct {
	path   string
	beside []string // an empty path is none

	mu   sync.Mutex // guards seen
	seen string     // the sum of what was last loaded
}

// load reads and checks the file.
func (f *source) load() (*firewall.Policies, error) {
	// The sum first: what changes in between differs from it, and is loaded again.
	sum := f.sum()
	ps, err := firewall.Load(f.path)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.seen = sum
	return ps, err
}

// changed reports whether a file is another one than was last loaded, right or
// wrong.
func (f *source) changed() bool {
	sum := f.sum()
	f.mu.Lock()
	defer f.mu.Unlock()
	return sum != f.seen
}

// sum identifies the content of the files, or what is wrong with reading them.
func (f *source) sum() string {
	sum := sumOf(f.path)
	for _, path := range f.beside {
		if path != "" {
			sum += " " + sumOf(path)
		}
	}
	return sum
}

func sumOf(path string) string {
	file, err := os.Open(path)
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

// watch calls reload each time a file has changed and each time hangup gets a
// signal, until ctx ends. It watches the directory: to save a file, most editors
// put another one in its place.
func (f *source) watch(ctx context.Context, hangup <-chan os.Signal, reload func(), log *slog.Logger) {
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
	var settled <-chan time.Time // set while a save may be under way
	for {
		select {
		case <-ctx.Done():
			return
		case <-hangup:
			reload()
		case <-events:
			if settled == nil {
				settled = time.After(settleTime)
			}
		case <-faults: // events were lost
			settled = time.After(settleTime)
		case <-poll.C:
			if w != nil {
				f.follow(w, log)
			}
			f.check(reload)
		case <-settled:
			settled = nil
			f.check(reload)
		}
	}
}

func (f *source) check(reload func()) {
	if f.changed() {
		reload()
	}
}

// follow watches the file's directory and, where the path is a link, that of the
// file it leads to. What is watched already stays so.
func (f *source) follow(w *fsnotify.Watcher, log *slog.Logger) {
	dirs := []string{filepath.Dir(f.path)}
	if real, err := filepath.EvalSymlinks(f.path); err == nil && filepath.Dir(real) != dirs[0] {
		dirs = append(dirs, filepath.Dir(real))
	}
	for _, dir := range dirs {
		if err := w.Add(dir); err != nil {
			log.Warn("cannot watch the allowlist's directory, looking at it now and then",
				"dir", dir, "every", pollEvery.String(), "error", err)
		}
	}
}
