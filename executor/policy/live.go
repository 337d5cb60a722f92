package policy

import (
	"fmt"
	"log/slog"
	"os"
	"sync"
	"syscall"
	"time"
)

// A Live holds the profiles of a file, and reads it anew when it has changed. A file
// with faults changes nothing but the log: the last good one stays in force. It is safe
// for concurrent use.
type Live struct {
	path string
	log  *slog.Logger

	mu    sync.Mutex // guards what follows
	good  *Profiles
	seen  stamp
	stale error // why the file as it lies there is not in force
}

// A stamp says whether a file is the one that was read.
type stamp struct {
	inode, size      uint64
	changed, written syscall.Timespec
	unsettled        bool // it could change once more within the same tick of the clock
	absent           bool
}

// settled is how long ago the last change must be for the next one to show in the times
// of a file, whatever file system it lies on.
const settled = 2 * time.Second

// Open reads the file at path, which must be right. An empty path is the default, which
// does not change.
func Open(path string, log *slog.Logger) (*Live, error) {
	if path == "" {
		return &Live{good: Default()}, nil
	}
	l := &Live{path: path, log: log, seen: look(path)}
	var err error
	if l.good, err = Load(path); err != nil {
		return nil, fmt.Errorf("read the profiles: %w", err)
	}
	return l, nil
}

// Profiles are those in force: of the file as it is now, or the last good ones.
func (l *Live) Profiles() *Profiles {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.path == "" {
		return l.good
	}
	now := look(l.path)
	if now == l.seen && !now.unsettled {
		return l.good
	}
	l.seen = now
	next, err := Load(l.path)
	switch {
	case err != nil && (l.stale == nil || l.stale.Error() != err.Error()):
		l.log.Error("profiles refused, those before are in force", "file", l.path, "digest", l.good.Digest(), "error", err)
	case err == nil && next.Digest() != l.good.Digest():
		l.log.Info("profiles reloaded", "file", l.path, "digest", next.Digest(), "policyVersion", next.Version())
		if next.Version() <= l.good.Version() {
			l.log.Warn("the profiles say something else and have no higher policyVersion: raise it", "file", l.path, "policyVersion", next.Version())
		}
	}
	if l.stale = err; err == nil {
		l.good = next
	}
	return l.good
}

// Stale says why the file, as it lies there, is not in force; nil where it is.
func (l *Live) Stale() error {
	l.Profiles()
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.stale
}

func look(path string) stamp {
	info, err := os.Stat(path)
	if err != nil {
		return stamp{absent: true}
	}
	s, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return stamp{unsettled: true}
	}
	return stamp{
		inode: s.Ino, size: uint64(s.Size), changed: s.Ctim, written: s.Mtim,
		unsettled: time.Since(time.Unix(s.Ctim.Unix())) < settled,
	}
}
