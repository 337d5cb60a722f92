package place

import (
	"context"
	"os"
	"path/filepath"

	"sallyport/executor/tree"
)

// makeWorkspace makes the host's directory for the place, unless the caller brings one:
// new, empty, and the sandbox's own.
func (p *Place) makeWorkspace() error {
	if p.spec.Dir != "" {
		return nil
	}
	p.dir = filepath.Join(p.Workspaces, p.spec.ID)
	if err := os.Mkdir(p.dir, 0o700); err != nil {
		return err
	}
	if err := os.Chown(p.dir, p.spec.UID, p.spec.GID); err != nil {
		os.Remove(p.dir) // the first error is the one that counts
		return err
	}
	return nil
}

// removeWorkspace removes a workspace of the place's own, following no links. What
// takes too long, or fails, is somebody else's to go on with.
func (p *Place) removeWorkspace() {
	if p.spec.Dir != "" {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), teardownTimeout)
	defer cancel()
	if err := tree.Remove(ctx, p.dir); err != nil {
		p.spec.Log.Warn("the workspace could not be removed yet", "error", err)
		if p.Leftover != nil {
			p.Leftover(p.dir)
		}
	}
}
