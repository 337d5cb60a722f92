// Package backend is what the executor asks of whatever isolates a sandbox:
// start it, hand over its two streams, wait for it, kill it. Its subpackages are
// the implementations.
package backend

import (
	"context"
	"io"
	"net/netip"
	"time"
)

// A Backend starts sandboxes.
type Backend interface {
	// Start starts one sandbox whose PID 1 is the entrypoint and returns once its
	// streams are attached; it does not wait for the ready frame. When it returns
	// an error nothing of the sandbox is left.
	Start(ctx context.Context, spec Spec) (Sandbox, error)
}

// A Sandbox is one started sandbox.
type Sandbox interface {
	// ID is the backend's own identifier, for logs.
	ID() string
	// Stdin and Stdout are the wire to PID 1. Closing Stdin lets it end.
	Stdin() io.WriteCloser
	Stdout() io.Reader
	// Wait blocks until the sandbox has ended and reports the engine's verdict.
	Wait(ctx context.Context) (Exit, error)
	// OOMKilled asks the engine whether the sandbox hit its memory limit so far. An
	// engine that cannot watch for it says no.
	OOMKilled(ctx context.Context) (bool, error)
	// Remove kills the sandbox if it runs and removes every trace of it. It may be
	// called more than once.
	Remove(ctx context.Context) error
}

// Exit is the engine's word on how a sandbox ended.
type Exit struct {
	Code      int
	OOMKilled bool
	// Stderr is the end of what PID 1 wrote to its standard error, at most 4 KiB:
	// why it gave up, if it did. It comes out of the sandbox and is not to be believed.
	Stderr string
}

// A Spec describes a sandbox. It holds nothing secret and nothing personal to
// the run's task: those go in by the wire.
type Spec struct {
	// Run is the run's identifier: a label, and part of the sandbox's name.
	Run   string
	Image string
	// UID and GID are those of the agent; never 0.
	UID, GID int
	// Workspace is the host's directory that is mounted at WorkspaceDir.
	Workspace string
	// Cell is the leased cell whose network the sandbox joins.
	Cell   Cell
	Limits Limits
}

// WorkspaceDir is where the workspace is inside a sandbox, HomeDir the agent's
// home, both writable.
const (
	WorkspaceDir = "/workspace"
	HomeDir      = "/home/agent"
)

// Limits are the resources of a sandbox. All are required.
type Limits struct {
	MemoryBytes  int64 // without swap
	PIDs         int64
	CPUs         float64       // in cores
	TmpBytes     int64         // each of the tmpfs mounts
	NoFile       int64         // descriptors a process
	StopGrace    time.Duration // from TERM to KILL
	ShmSizeBytes int64
}

// A Cell is a network segment made for one sandbox at a time.
type Cell struct {
	ID string
	// Holder names what owns the cell's network namespace, in the backend's terms
	// (for docker: a container's ID).
	Holder string
	Prefix netip.Prefix
	// Pool is the range that the backend's cells have their subnets of, used or not.
	Pool netip.Prefix
	// Gate is the gate's address in the cell, Sandbox the sandbox's own.
	Gate, Sandbox netip.Addr
}

// Cells makes cells ahead and lends them, one run after another.
type Cells interface {
	// Acquire returns a cell that nobody uses, making one if none is ready.
	Acquire(ctx context.Context) (Cell, error)
	// Put gives a cell back for the next run; Discard takes it apart because
	// something about it is wrong.
	Put(c Cell)
	Discard(c Cell)
}

// OnHost describes a program of the entrypoint that runs in the host's network
// namespace, to see what reaches the host: part of the proof of the boundary,
// never of a run.
type OnHost struct {
	Run   string // identifies the program; part of its name
	Image string // an image with the entrypoint
	// UID and GID are those of the agent; never 0.
	UID, GID int
	// Args follow the entrypoint.
	Args []string
}
