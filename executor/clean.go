package executor

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"sallyport/executor/tree"
)

const (
	// cleanPatience is how long a start waits for old workspaces to be removed,
	// cleanPause the time between attempts at those that cannot be.
	cleanPatience = 5 * time.Second
	cleanPause    = 10 * time.Minute
)

// A cleaner removes what earlier executors have left in the directory of workspaces,
// and what runs could not remove themselves.
type cleaner struct {
	log  *slog.Logger
	wake chan struct{} // holds a value when there is something new to remove

	mu   sync.Mutex // guards left
	left []string   // paths
}

// newCleaner takes all that is in a directory now for left behind.
func newCleaner(dir string, log *slog.Logger) *cleaner {
	c := &cleaner{log: log, wake: make(chan struct{}, 1)}
	old, err := os.ReadDir(dir)
	if err != nil {
		log.Error("old workspaces could not be listed, so they stay", "directory", dir, "error", err)
	}
	for _, e := range old {
		c.left = append(c.left, filepath.Join(dir, e.Name()))
	}
	return c
}

// add hands a path over.
func (c *cleaner) add(path string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.left = append(c.left, path)
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// run removes what is left, again and again where need be, until ctx ends.
func (c *cleaner) run(ctx context.Context) {
	for {
		c.sweep(ctx)
		select {
		case <-ctx.Done():
			return
		case <-c.wake:
		case <-time.After(cleanPause):
		}
	}
}

// first is a sweep that does not hold a start up for long.
func (c *cleaner) first() {
	ctx, cancel := context.WithTimeout(context.Background(), cleanPatience)
	defer cancel()
	c.sweep(ctx)
}

// sweep tries to remove each of what is left.
func (c *cleaner) sweep(ctx context.Context) {
	c.mu.Lock()
	paths := slices.Clone(c.left)
	c.mu.Unlock()
	for _, path := range paths {
		err := tree.Remove(ctx, path)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			c.log.Error("a workspace could not be removed; it will be tried again", "path", path, "error", err)
			continue
		}
		c.mu.Lock()
		c.left = slices.DeleteFunc(c.left, func(p string) bool { return p == path })
		c.mu.Unlock()
	}
}
