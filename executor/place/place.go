// Package place is the life of one sandbox: its workspace and what it takes of the disk,
// its cell, the sandbox itself and the wire to its PID 1. A place is opened, given a
// cell, started, and then entered by one task after another; until a task enters, it is
// parked. It knows nothing of what a task does there, and leaves nothing behind.
//
//	p, failure := places.Open(ctx, place.Spec{ID: id, Image: image, UID: uid, GID: gid, Limits: limits})
//	defer p.Close()
//	cell, err := p.TakeCell(ctx) // for the task to lease, before anything starts in it
//	defer p.GiveCell(true)
//	failure = p.Start(ctx)
//	defer p.Stop()
//	session, failure := p.Ready(ctx)
//	failure = p.Enter(ctx, fail)
//	defer p.Leave()
//
// It believes the engine before PID 1. Where the two of them differ in what the kernel
// counts (out of memory, processes refused), the kernel's own counters decide, read by way
// of PID 1 as long as that answers; each task has the difference that came while it was
// there.
package place

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"sallyport/entrypoint/wire"
	"sallyport/executor/api"
	"sallyport/executor/backend"
	"sallyport/executor/tree"
)

// Places opens places. All fields are required unless they say otherwise. It must not be
// copied.
type Places struct {
	Backends *backend.Registry
	// Workspaces is the directory that holds the workspaces of places that have none of
	// the caller's. Nobody but the executor may enter it.
	Workspaces string
	// Floor is what the file system of a workspace must have left: with less no place
	// is opened, and tasks that write there are ended.
	Floor Floor
	// AllowSockets lets a caller's directory hold sockets and FIFOs, which lead past the
	// gate.
	AllowSockets bool
	// Leftover is told of a workspace that could not be removed, at least not in
	// time. If nil, it stays.
	Leftover func(dir string)

	pressure pressure
}

// A Spec says what a place is to be. All fields are required unless they say otherwise.
type Spec struct {
	// ID names the place, and with it its workspace and its sandbox.
	ID string
	// Backend is the name of the one that isolates the sandbox.
	Backend string
	Image   string
	// UID and GID are those of the sandbox; never 0.
	UID, GID int
	// Dir is the host's directory that is the workspace; empty means a new and empty one.
	Dir    string
	Limits backend.Limits
	// Growth is the most that may be added to the workspace.
	Growth tree.Size
	// Redact takes out of text what must not be told; an agent may have put it there.
	Redact func(string) string
	Log    *slog.Logger
}

// A Place is one sandbox with all that belongs to it. Its methods are called one after
// another, but for Kill, which may be called at any time between Start and Stop.
type Place struct {
	*Places
	spec    Spec
	backend backend.Backend
	dir     string // the workspace
	disk    *disk
	cell    backend.Cell
	sandbox *backend.Sandbox
	session *wire.Session // the wire; nil until Ready
	stuck   bool          // the sandbox may still be in the cell

	entered bool
	before  Counters // what the kernel had counted when the present task entered
	unwatch func()   // ends the watch of the disk
}

// The bounds in time of a place's steps.
const (
	acquireTimeout  = 60 * time.Second
	startTimeout    = 60 * time.Second
	readyTimeout    = 60 * time.Second // of a sandbox that has not ended
	teardownTimeout = 30 * time.Second
)

// Open makes the workspace and begins to look at what it holds already, until ctx ends.
// Close must follow.
func (ps *Places) Open(ctx context.Context, spec Spec) (*Place, *api.Error) {
	isolating, ok := ps.Backends.Get(spec.Backend)
	if !ok || isolating.Cells == nil {
		return nil, StartFailed("choose the backend", fmt.Errorf("there is none with the name %q that has cells", spec.Backend))
	}
	p := &Place{Places: ps, spec: spec, backend: isolating, dir: spec.Dir}
	if err := p.makeWorkspace(); err != nil {
		return nil, Cause(ctx, StartFailed("make the workspace", err))
	}
	var failure *api.Error
	if p.disk, failure = p.openDisk(ctx); failure != nil {
		p.removeWorkspace()
		return nil, Cause(ctx, failure)
	}
	return p, nil
}

// Close removes the workspace, unless it is the caller's.
func (p *Place) Close() {
	p.disk.close()
	p.removeWorkspace()
}

// TakeCell takes a cell for the place. GiveCell must follow.
func (p *Place) TakeCell(ctx context.Context) (backend.Cell, error) {
	ctx, cancel := context.WithTimeout(ctx, acquireTimeout)
	defer cancel()
	cell, err := p.backend.Cells.Acquire(ctx)
	p.cell = cell
	return cell, err
}

// GiveCell gives the cell back. If it is not sound, or the sandbox may still be there, it
// is never used again.
func (p *Place) GiveCell(sound bool) {
	if sound && !p.stuck {
		p.backend.Cells.Put(p.cell)
	} else {
		p.backend.Cells.Discard(p.cell)
	}
}

// Enter lets a task in, which ctx bounds: from now on the disk is watched, fail ends the
// task where that has to be, and counters count for the task. Leave must follow.
func (p *Place) Enter(ctx context.Context, fail context.CancelCauseFunc) *api.Error {
	if failure := p.disk.await(); failure != nil {
		return failure
	}
	if p.entered {
		p.Count()
	}
	p.entered = true
	p.unwatch = p.disk.watch(ctx, fail)
	return nil
}

// Leave lets the task out again.
func (p *Place) Leave() { p.unwatch() }
