// Package statedir is the executor's state directory: what lies where in it, the lock by
// which one executor has it for itself, which paths of it and which other secrets no
// request may name, and the removal of the workspaces that are left there.
package statedir

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// The directories and files of the executor in its state directory.
const (
	executionsDir = "executions"
	workspacesDir = "workspaces"
	sessionsDir   = "sessions"
	cellsDir      = "cells"  // the backend's
	tokensDir     = "tokens" // of GitHub, of runs under way
	gateDir       = "gate"   // the live allowlist; scripts/up puts it there
	tokenFile     = "token"
	socketFile    = "api.sock"
	secretsDir    = "secrets" // of runs, where no setting names another; the operator puts them there
	auditDir      = "audit"   // signed records of runs, and the key
	lockFile      = "lock"
	databaseFile  = "state.db"
)

// TokenFile is the file with the bearer token, where no setting names another.
func TokenFile(state string) string { return filepath.Join(state, tokenFile) }

// SocketFile is the API's socket, where no setting names another.
func SocketFile(state string) string { return filepath.Join(state, socketFile) }

// Secrets is the directory of the secrets of runs, where no setting names another.
func Secrets(state string) string { return filepath.Join(state, secretsDir) }

// Executions is the directory of the records of executions.
func Executions(state string) string { return filepath.Join(state, executionsDir) }

// Sessions is the directory of the session logs of runs that name none.
func Sessions(state string) string { return filepath.Join(state, sessionsDir) }

// Workspaces is the directory of the workspaces of runs that bring none.
func Workspaces(state string) string { return filepath.Join(state, workspacesDir) }

// Tokens is the directory of the GitHub tokens of runs under way.
func Tokens(state string) string { return filepath.Join(state, tokensDir) }

// Audit is the directory of the audit log and its key.
func Audit(state string) string { return filepath.Join(state, auditDir) }

// Database is the file of what is looked up.
func Database(state string) string { return filepath.Join(state, databaseFile) }

// Lock makes the state directory and locks it for as long as the file is open.
func Lock(state string) (*os.File, error) {
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

// Make makes the directories that runs write to.
func Make(state string) error {
	var err error
	for _, name := range []string{workspacesDir, sessionsDir} {
		err = errors.Join(err, os.MkdirAll(filepath.Join(state, name), 0o700))
	}
	// Nobody but the executor enters it, even if it is a mount that others made.
	return errors.Join(err, os.Chmod(Workspaces(state), 0o700))
}
