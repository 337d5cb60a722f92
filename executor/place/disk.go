package place

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"sallyport/executor/api"
	"sallyport/executor/tree"
)

const (
	// measurePause is the least time between two measurements of a workspace; after one
	// that took long it is ten times as long as that.
	measurePause = 2 * time.Second
	// measureTimeout bounds a measurement, four times what that of the caller's directory
	// took where that is longer, and hurriedTimeout one for want of space.
	measureTimeout = time.Minute
	hurriedTimeout = 2 * time.Second
	// maxNamed is how many files a message names.
	maxNamed = 10
	// maxMoved is how many measurements in a row may come to nothing because directories
	// were moved during them.
	maxMoved = 5
)

// A disk is what a place takes of the file system that its workspace is on.
type disk struct {
	dir      *tree.Dir
	device   uint64
	growth   tree.Size // that is allowed
	floor    Floor
	pressure *pressure
	log      *slog.Logger
	cancel   context.CancelFunc

	known    chan struct{} // closed once the following is known
	limit    tree.Size     // of the whole workspace
	brought  tree.Size     // what the caller's directory held before
	patience time.Duration // for one measurement
	failure  *api.Error    // why the workspace cannot be used

	// The rest belongs to the goroutine that watches.
	size     tree.Size     // at the last measurement
	space    tree.Space    // just before that
	measured time.Time     // when that was over
	took     time.Duration // how long it took
	moved    int           // measurements in a row that came to nothing
}

// openDisk begins to measure what the workspace holds before any task, until ctx ends.
// close must follow.
func (p *Place) openDisk(ctx context.Context) (*disk, *api.Error) {
	for _, path := range []string{p.Workspaces, p.dir} {
		if failure := p.Floor.Room(path); failure != nil {
			return nil, failure
		}
	}
	opened, err := tree.Open(p.dir)
	if err != nil {
		return nil, StartFailed("watch the workspace", err)
	}
	d := &disk{
		dir: opened, growth: p.spec.Growth, floor: p.Floor, pressure: &p.pressure, log: p.spec.Log,
		known: make(chan struct{}), patience: measureTimeout,
	}
	if d.device, err = opened.Device(); err != nil {
		opened.Close()
		return nil, StartFailed("watch the workspace", err)
	}
	ctx, d.cancel = context.WithCancel(ctx)
	go func() {
		defer close(d.known)
		if p.spec.Dir != "" { // one of the place's own is empty
			d.failure = d.measureBrought(ctx, p.AllowSockets, p.spec.Redact)
		}
		d.size = d.brought
		d.limit = d.brought.Plus(d.growth)
	}()
	return d, nil
}

// measureBrought measures the caller's directory and looks for what leads out of it.
func (d *disk) measureBrought(ctx context.Context, allowSockets bool, redact func(string) string) *api.Error {
	began := time.Now()
	size, doors, err := d.dir.Doors(ctx, maxNamed)
	d.brought = size
	d.patience = max(measureTimeout, 4*time.Since(began))
	switch {
	case len(doors) > 0 && !allowSockets:
		return leadsOut(doors, redact)
	case errors.Is(err, tree.ErrDeep):
		return tooDeep()
	case err != nil:
		return Cause(ctx, StartFailed("look at the workspace", err))
	}
	return nil
}

// await waits until it is known what the caller brought: from then on, whatever
// comes is a task's.
func (d *disk) await() *api.Error {
	<-d.known
	return d.failure
}

func (d *disk) close() {
	d.cancel()
	<-d.known
	d.dir.Close()
}

// watch watches the workspace until ctx ends or the returned function is called, which
// waits for the watch to end. fail ends the task that writes there: when the workspace has
// grown by more than the limit, or when its file system runs short and the task is the one
// to make room. A measurement is a sample, and does not see files that have lost their
// names; the space that is left counts all.
func (d *disk) watch(ctx context.Context, fail context.CancelCauseFunc) (stop func()) {
	w := &writer{device: d.device}
	w.end = func(space tree.Space, consequence string) {
		d.log.Warn("the disk is short of space and the run is ended", "freeBytes", space.Bytes, "freeFiles", space.Inodes, "addedBytes", w.added.Bytes)
		fail(d.floor.failure(space, consequence))
	}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		d.pressure.join(w)
		defer d.pressure.leave(w)
		if failure := d.follow(ctx, w); failure != nil {
			fail(failure)
		}
	}()
	return func() { cancel(); <-ended }
}

// follow measures the workspace whenever it is due, until ctx ends or something is wrong.
func (d *disk) follow(ctx context.Context, w *writer) *api.Error {
	var err error
	if d.space, err = d.dir.Space(); err != nil {
		d.log.Error("the workspace's space is not known", "error", err)
	}
	d.measured = time.Now()
	for pause(ctx, spacePause) {
		space, err := d.dir.Space()
		if err != nil {
			continue // measurements go on
		}
		short := d.floor.short(space, 1)
		if !short && !d.due() && !d.filling(space) {
			continue
		}
		if failure := d.measure(ctx, space, short); failure != nil {
			return failure
		}
		if short {
			d.pressure.relieve(w, d.size.Minus(d.brought), space, d.floor)
		}
	}
	return nil
}

// pause waits and reports whether ctx still goes on.
func pause(ctx context.Context, wait time.Duration) bool {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}

// due reports whether it is time for a measurement.
func (d *disk) due() bool {
	return d.moved > 0 || time.Since(d.measured) >= max(measurePause, 10*d.took)
}

// filling reports whether as much was written to the file system since the last
// measurement as the task may still write, by whomever.
func (d *disk) filling(s tree.Space) bool {
	left := d.limit.Minus(d.size)
	return time.Since(d.measured) >= d.took && (d.space.Bytes-s.Bytes >= left.Bytes || d.space.Inodes-s.Inodes >= left.Entries)
}

// measure measures the workspace and says what is wrong with it, if anything.
func (d *disk) measure(ctx context.Context, space tree.Space, short bool) *api.Error {
	patience := d.patience
	if short {
		patience = hurriedTimeout
	}
	mctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	began := time.Now()
	size, err := d.dir.Measure(mctx, d.limit)
	d.measured = time.Now()
	d.took = d.measured.Sub(began)
	switch {
	case size.Exceeds(d.limit):
		return diskExceeded(d.growth)
	case errors.Is(err, tree.ErrDeep):
		return tooDeep()
	case errors.Is(err, tree.ErrMoved):
		if d.moved++; d.moved == maxMoved {
			return unseen("directories are moved in it all the time")
		}
		return nil
	case ctx.Err() != nil:
		return nil
	case errors.Is(err, context.DeadlineExceeded) && !short:
		return unseen(fmt.Sprintf("that takes longer than %v", patience))
	case err != nil && !short:
		d.log.Warn("the workspace could not be looked at", "error", err)
		return nil
	}
	d.size, d.space, d.moved = size, space, 0
	return nil
}

// leadsOut tells of what leads past the gate: the filter of a cell does not see it.
func leadsOut(doors []string, redact func(string) string) *api.Error {
	for i := range doors {
		doors[i] = strings.ToValidUTF8(redact(doors[i]), "\uFFFD")
	}
	return &api.Error{
		Code: api.CodeStartFailed,
		Message: "cwd holds sockets or FIFOs, by which an agent could reach who is at their other end, past the gate: " + named(doors) +
			"; remove them, or let the operator set SALLYPORT_ALLOW_SOCKETS",
		Details: map[string]any{"field": "config.cwd", "sockets": doors},
	}
}

// named are at most maxNamed names in one text.
func named(names []string) string {
	text := fmt.Sprintf("%.256q", names)
	return strings.Trim(text, "[]")
}

func diskExceeded(growth tree.Size) *api.Error {
	return &api.Error{
		Code:    api.CodeDisk,
		Message: fmt.Sprintf("the run added more than %d bytes or %d files to its workspace", growth.Bytes, growth.Entries),
		Details: map[string]any{"limitBytes": growth.Bytes, "limitFiles": growth.Entries},
	}
}

func tooDeep() *api.Error {
	return &api.Error{
		Code:    api.CodeDisk,
		Message: fmt.Sprintf("the workspace has directories that are nested more than %d deep", tree.MaxDepth),
		Details: map[string]any{"limitDepth": tree.MaxDepth},
	}
}

func unseen(why string) *api.Error {
	return &api.Error{Code: api.CodeDisk, Message: "the workspace could not be looked at: " + why}
}
