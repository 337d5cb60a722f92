package executor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"sallyport/firewall"
)

// The directories and files of the executor in its state directory.
const (
	executionsDir = "executions"
	workspacesDir = "workspaces"
	sessionsDir   = "sessions"
	cellsDir      = "cells"  // the backend's
	tokensDir     = "tokens" // of GitHub, of runs under way
	gateDir       = "gate"   // the live allowlist; scripts/up puts it there
	lockFile      = "lock"
)

// lockState makes the state directory and locks it for as long as the file is
// open.
func lockState(state string) (*os.File, error) {
	if err := os.MkdirAll(state, 0o700); err != nil {
		return nil, err
	}
	lock, err := os.OpenFile(filepath.Join(state, lockFile), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s, which another executor may hold: %w", lock.Name(), err), lock.Close())
	}
	return lock, nil
}

// prepare makes the state directory ready: whatever was started by an earlier
// executor is ended first, so that nobody uses its workspaces any more.
//
// It returns the final receipts of Boot.
func (c *Config) prepare() (map[string]firewall.Receipt, error) {
	if err := c.keepPrivate(); err != nil {
		return nil, err
	}
	receipts, err := c.boot()
	if err != nil {
		return nil, err
	}
	for _, name := range []string{workspacesDir, sessionsDir} {
		err = errors.Join(err, os.MkdirAll(filepath.Join(c.State, name), 0o700))
	}
	// Nobody but the executor enters it, even if it is a mount that others made.
	return receipts, errors.Join(err, os.Chmod(filepath.Join(c.State, workspacesDir), 0o700))
}

// bootTimeout bounds Config.Boot.
const bootTimeout = 5 * time.Minute

func (c *Config) boot() (map[string]firewall.Receipt, error) {
	if c.Boot == nil {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), bootTimeout)
	defer cancel()
	receipts, err := c.Boot(ctx)
	if err != nil {
		return nil, fmt.Errorf("remove what an earlier executor left: %w", err)
	}
	return receipts, nil
}

// sweepPause is the time between two looks for executions that are too old.
const sweepPause = time.Hour

func (e *Executor) sweepNowAndThen() {
	for {
		e.sweep()
		select {
		case <-e.background.Done():
			return
		case <-time.After(sweepPause):
		}
	}
}

// sweep forgets executions that are kept no longer.
func (e *Executor) sweep() {
	gone, err := e.store.Sweep(e.cfg.Keep, time.Now().Add(-e.cfg.KeepFor))
	if err != nil {
		e.cfg.Log.Error("old executions could not be removed", "error", err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, m := range gone {
		if e.keys[m.Key].ID == m.ID {
			delete(e.keys, m.Key)
		}
	}
}
