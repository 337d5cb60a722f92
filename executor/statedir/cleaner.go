package statedir

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

// A Cleaner removes what earlier executors have left in the directory of workspaces,
// and what runs could not remove themselves.
type Cleaner struct {
	log  *slog.Logger
	wake chan struct{} // holds a value when there is something new to remove

	mu   sync.Mutex // guards left
	left []string   // paths
}

// NewCleaner takes all that is in a directory now for left behind.
func NewCleaner(dir string, log *slog.Logger) *Cleaner {
	c := &Cleaner{log: log, wake: make(chan struct{}, 1)}
	old, err := os.ReadDir(dir)
	if err != nil {
		log.Error("old workspaces could not be listed, so they stay", "directory", dir, "error", err)
	}
	for _, e := range old {
		c.left = append(c.left, filepath.Join(dir, e.Name()))
	}
	return c
}

// Add hands a path over.
func (c *Cleaner) Add(path string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.left = append(c.left, path)
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// Run removes what is left, again and again where need be, until ctx ends.
func (c *Cleaner) Run(ctx context.Context) {
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

// First is a sweep that does not hold a start up for long.
func (c *Cleaner) First() {
	ctx, cancel := context.WithTimeout(context.Background(), cleanPatience)
	defer cancel()
	c.sweep(ctx)
}

// sweep tries to remove each of what is left.
func (c *Cleaner) sweep(ctx context.Context) {
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
