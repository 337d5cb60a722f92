package run

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"sallyport/executor/api"
	"sallyport/executor/plan"
	"sallyport/executor/tree"
)

const (
	// spacePause is the time between two questions for the space that is left.
	spacePause = time.Second
	// watchPause is the least time between two looks at a workspace; after a look
	// that took long it is ten times as long as that.
	watchPause = 2 * time.Second
	// lookTimeout bounds a look, four times what the look at the caller's directory
	// took where that is longer, and hurriedLook one for want of space.
	lookTimeout = time.Minute
	hurriedLook = 2 * time.Second
	// maxNamed is how many files a message names.
	maxNamed = 10
	// maxMoved is how many looks in a row may come to nothing because directories
	// were moved during them.
	maxMoved = 5
)

// A disk is what a run takes of the file system that its workspace is on.
type disk struct {
	x      *execution
	dir    *tree.Dir
	device uint64
	cancel context.CancelFunc

	known    chan struct{} // closed once the following is known
	limit    tree.Size     // of the whole workspace
	before   tree.Size     // what the caller brought
	patience time.Duration // for one look
	failure  *api.Error    // why the workspace cannot be used

	// The rest belongs to watch.
	size   tree.Size     // at the last look
	space  tree.Space    // just before that
	looked time.Time     // when that was over
	took   time.Duration // how long it took
	moved  int           // looks in a row that came to nothing
}

// openDisk begins to look at what the workspace holds before the job. close must
// follow.
func (x *execution) openDisk(ctx context.Context, dir string) (*disk, *api.Error) {
	for _, path := range []string{x.Workspaces, dir} {
		if failure := x.Floor.Room(path); failure != nil {
			return nil, failure
		}
	}
	opened, err := tree.Open(dir)
	if err != nil {
		return nil, startFailed("watch the workspace", err)
	}
	d := &disk{x: x, dir: opened, known: make(chan struct{}), patience: lookTimeout}
	if d.device, err = opened.Device(); err != nil {
		opened.Close()
		return nil, startFailed("watch the workspace", err)
	}
	ctx, d.cancel = context.WithCancel(ctx)
	go func() {
		defer close(d.known)
		d.failure = d.begin(ctx)
	}()
	return d, nil
}

// begin measures the caller's workspace; that of a run without one is empty.
func (d *disk) begin(ctx context.Context) *api.Error {
	if d.x.plan.Dir != "" {
		began := time.Now()
		var doors []string
		var err error
		d.before, doors, err = d.dir.Doors(ctx, maxNamed)
		switch {
		case len(doors) > 0 && !d.x.AllowSockets:
			return d.x.opens(doors)
		case errors.Is(err, tree.ErrDeep):
			return tooDeep()
		case err != nil:
			return d.x.cause(ctx, startFailed("look at the workspace", err))
		}
		d.patience = max(lookTimeout, 4*time.Since(began))
	}
	d.size = d.before
	d.limit = d.before.Plus(tree.Size{Bytes: d.x.plan.Limits.WorkspaceBytes, Entries: d.x.plan.Limits.WorkspaceFiles})
	return nil
}

// await waits until it is known what the caller brought: from then on, whatever
// comes is the run's.
func (d *disk) await() *api.Error {
	<-d.known
	return d.failure
}

func (d *disk) close() {
	d.cancel()
	<-d.known
	d.dir.Close()
}

// leave takes the set-id bits from what the run has left in its caller's directory: on
// most file systems whoever ran such a file would become the agent's user. The sandbox
// must be gone.
func (d *disk) leave() {
	d.cancel()
	<-d.known
	if d.x.plan.Dir == "" || d.failure != nil { // then no job has run
		return
	}
	n, names, err := strip(d.dir, d.x.plan.UID, max(lookTimeout, d.patience), d.x.log)
	if n > 0 {
		d.x.warn("the set-id bits were taken from %d files that the run left in its cwd: %s", n, named(names))
	}
	if err != nil {
		d.x.warn("whether the run left files with set-id bits in its cwd is not certain: %v", err)
	}
}

// StripSetID does what the end of a run does for one whose executor died.
func StripSetID(dir string, uid int, log *slog.Logger) {
	opened, err := tree.Open(dir)
	if err != nil {
		log.Warn("what a run left in its cwd could not be looked at", "directory", dir, "error", err)
		return
	}
	defer opened.Close()
	strip(opened, uid, lookTimeout, log)
}

func strip(dir *tree.Dir, uid int, patience time.Duration, log *slog.Logger) (n int, names []string, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	n, names, err = dir.StripSetID(ctx, uid, maxNamed)
	if n > 0 {
		log.Warn("set-id bits were taken from files that a run left", "files", n, "names", named(names))
	}
	if err != nil {
		log.Error("set-id bits could not be taken from what a run left", "error", err)
	}
	return n, names, err
}

// watch ends the run when its workspace has grown by more than the limit, or when
// its file system runs short and the run is the one to make room. A look is a
// sample, and does not see files that have lost their names; the space that is left
// counts all.
func (d *disk) watch(ctx context.Context) {
	d.x.pressure.join(d)
	defer d.x.pressure.leave(d)
	var err error
	if d.space, err = d.dir.Space(); err != nil {
		d.x.log.Error("the workspace's space is not known", "error", err)
	}
	d.looked = time.Now()
	for wake(ctx, spacePause) {
		space, err := d.dir.Space()
		if err != nil {
			continue // looks go on
		}
		short := d.x.Floor.short(space, 1)
		if !short && !d.due() && !d.filling(space) {
			continue
		}
		if failure := d.look(ctx, space, short); failure != nil {
			d.x.fail(failure)
			return
		}
		if short {
			d.x.pressure.relieve(d, space)
		}
	}
}

// due reports whether it is time for a look.
func (d *disk) due() bool {
	return d.moved > 0 || time.Since(d.looked) >= max(watchPause, 10*d.took)
}

// filling reports whether as much was written to the file system since the last look
// as the run may still write, by whomever.
func (d *disk) filling(s tree.Space) bool {
	left := d.limit.Minus(d.size)
	return time.Since(d.looked) >= d.took && (d.space.Bytes-s.Bytes >= left.Bytes || d.space.Inodes-s.Inodes >= left.Entries)
}

// look measures the workspace and says what is wrong with it, if anything.
func (d *disk) look(ctx context.Context, space tree.Space, short bool) *api.Error {
	patience := d.patience
	if short {
		patience = hurriedLook
	}
	lctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	began := time.Now()
	size, err := d.dir.Measure(lctx, d.limit)
	d.looked = time.Now()
	d.took = d.looked.Sub(began)
	switch {
	case size.Exceeds(d.limit):
		return diskExceeded(d.x.plan.Limits)
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
		d.x.log.Warn("the workspace could not be looked at", "error", err)
		return nil
	}
	d.size, d.space, d.moved = size, space, 0
	return nil
}

// opens tells of what leads past the gate: the filter of a cell does not see it.
func (x *execution) opens(doors []string) *api.Error {
	for i := range doors {
		doors[i] = strings.ToValidUTF8(x.redactor.String(doors[i]), "\uFFFD")
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

func diskExceeded(l plan.Limits) *api.Error {
	return &api.Error{
		Code:    api.CodeDisk,
		Message: fmt.Sprintf("the run added more than %d bytes or %d files to its workspace", l.WorkspaceBytes, l.WorkspaceFiles),
		Details: map[string]any{"limitBytes": l.WorkspaceBytes, "limitFiles": l.WorkspaceFiles},
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
