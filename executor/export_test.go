package executor

import (
	"context"
	"strings"
	"time"
)

// Routes are the routes as the OpenAPI document writes them, with " open" behind
// those that need no token.
func Routes() []string {
	var list []string
	for _, r := range (*Executor)(nil).routes() {
		route := r.method + " " + strings.ReplaceAll(r.path, "...}", "}")
		if r.open {
			route += " open"
		}
		list = append(list, route)
	}
	return list
}

// Drain is the part of Shutdown after which requests are still answered.
func (e *Executor) Drain(ctx context.Context) error { return e.drain(ctx) }

// Later has the executor take what it remembers for a moment as long past.
func (e *Executor) Later() {
	for _, r := range []*recent{e.engine, e.state} {
		r.mu.Lock()
		r.last = time.Time{}
		r.mu.Unlock()
	}
	e.proof.mu.Lock()
	defer e.proof.mu.Unlock()
	e.proof.rested = time.Time{}
}

// Asking is how many callers wait for a check of the boundary.
func (e *Executor) Asking() int {
	e.proof.mu.Lock()
	defer e.proof.mu.Unlock()
	return e.proof.asking
}
