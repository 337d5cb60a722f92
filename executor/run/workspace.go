package run

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"sallyport/executor/api"
)

// workspace returns the host's directory for the run: the caller's, or a new and
// empty one that belongs to the agent.
func (x *execution) workspace() (string, error) {
	if x.plan.Dir != "" {
		return x.plan.Dir, nil
	}
	dir := filepath.Join(x.Workspaces, x.id)
	if err := os.Mkdir(dir, 0o700); err != nil {
		return "", err
	}
	if err := os.Chown(dir, x.plan.UID, x.plan.GID); err != nil {
		os.Remove(dir) // the first error is the one that counts
		return "", err
	}
	return dir, nil
}

// removeWorkspace removes a workspace of the run's own, following no links.
func (x *execution) removeWorkspace() {
	if x.plan.Dir != "" {
		return
	}
	if err := os.RemoveAll(filepath.Join(x.Workspaces, x.id)); err != nil {
		x.log.Error("the workspace could not be removed", "error", err)
	}
}

// watchPause is the least time between two looks at a workspace; after a look
// that took long it is ten times as long as that.
const watchPause = 2 * time.Second

// watchWorkspace ends the run when its workspace has grown by more than the
// limit. The look is a sample: what a run writes and removes in between is
// bounded by the file system alone.
func (x *execution) watchWorkspace(ctx context.Context, dir string) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		x.fail(startFailed("watch the workspace", err))
		return
	}
	defer root.Close()
	var before extent
	if x.plan.Dir != "" {
		before = measure(ctx, root, extent{1 << 62, 1 << 62})
	}
	limit := extent{before.bytes + x.Limits.WorkspaceBytes, before.files + x.Limits.WorkspaceFiles}
	pause := watchPause
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
		began := time.Now()
		if now := measure(ctx, root, limit); now.exceeds(limit) {
			x.fail(diskExceeded(x.Limits))
			return
		}
		pause = max(watchPause, 10*time.Since(began))
	}
}

func diskExceeded(l Limits) *api.Error {
	return &api.Error{
		Code:    api.CodeDisk,
		Message: fmt.Sprintf("the run added more than %d bytes or %d files to its workspace", l.WorkspaceBytes, l.WorkspaceFiles),
		Details: map[string]any{"limitBytes": l.WorkspaceBytes, "limitFiles": l.WorkspaceFiles},
	}
}

// An extent is how much a directory holds: bytes on disk and entries.
type extent struct{ bytes, files int64 }

func (e extent) exceeds(limit extent) bool { return e.bytes > limit.bytes || e.files > limit.files }

// measure adds up what root holds and stops once that exceeds the limit. What
// vanishes meanwhile does not count, and nothing outside root is looked at.
func measure(ctx context.Context, root *os.Root, limit extent) extent {
	var sum extent
	fs.WalkDir(root.FS(), ".", func(_ string, d fs.DirEntry, err error) error {
		if ctx.Err() != nil || sum.exceeds(limit) {
			return fs.SkipAll
		}
		if err != nil {
			return nil // gone, or not readable: its parent was counted
		}
		info, err := d.Info()
		if err != nil {
			return nil
		}
		sum.files++
		if st, ok := info.Sys().(*syscall.Stat_t); ok {
			sum.bytes += st.Blocks * 512
		}
		return nil
	})
	return sum
}
