package place

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"sallyport/executor/tree"
)

// stripSetID takes the set-id bits from what was left in the caller's directory: on most
// file systems whoever ran such a file would become the sandbox's user. The sandbox must
// be gone. It returns what the caller has to be told.
func (p *Place) stripSetID() (warnings []string) {
	p.disk.cancel()
	if failure := p.disk.await(); p.spec.Dir == "" || failure != nil { // then no job has run
		return nil
	}
	n, names, err := strip(p.disk.dir, p.spec.UID, max(measureTimeout, p.disk.patience), p.spec.Log)
	if n > 0 {
		warnings = append(warnings, fmt.Sprintf("the set-id bits were taken from %d files that the run left in its cwd: %s", n, named(names)))
	}
	if err != nil {
		warnings = append(warnings, fmt.Sprintf("whether the run left files with set-id bits in its cwd is not certain: %v", err))
	}
	return warnings
}

// StripSetID does what the end of a place does for one whose executor died.
func StripSetID(dir string, uid int, log *slog.Logger) {
	opened, err := tree.Open(dir)
	if err != nil {
		log.Warn("what a run left in its cwd could not be looked at", "directory", dir, "error", err)
		return
	}
	defer opened.Close()
	strip(opened, uid, measureTimeout, log)
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
