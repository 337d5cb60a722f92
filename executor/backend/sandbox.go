package backend

import (
	"context"
	"io"
	"time"
)

// A Sandbox is one started sandbox.
type Sandbox struct {
	// ID is the backend's own identifier, for logs.
	ID string
	// ImageDigest is that of the image that runs, sha256:...; empty where it has none.
	ImageDigest string
	// Stdin and Stdout are the wire to PID 1. Closing Stdin lets it end.
	Stdin  io.WriteCloser
	Stdout io.Reader
	Life
}

// A Life is what a backend knows of a sandbox, and how it ends it.
type Life interface {
	// Wait blocks until the sandbox has ended and reports the backend's verdict.
	Wait(ctx context.Context) (Exit, error)
	// OOMKilled asks the backend whether the sandbox hit its memory limit so far. One
	// that cannot watch for it says no.
	OOMKilled(ctx context.Context) (bool, error)
	// Remove kills the sandbox if it runs and removes every trace of it. It may be
	// called more than once.
	Remove(ctx context.Context) error
}

// Exit is the backend's word on how a sandbox ended.
type Exit struct {
	Code      int
	OOMKilled bool
	// Stderr is the end of what PID 1 wrote to its standard error, at most 4 KiB:
	// why it gave up, if it did. It comes out of the sandbox and is not to be believed.
	Stderr string
}

// A Spec describes a sandbox. It holds nothing of what will be done there, secrets and
// jobs among it: those go in by the wire.
type Spec struct {
	// Name identifies the sandbox to people: a label, and part of its name.
	Name  string
	Image string
	// UID and GID are those of the agent; never 0.
	UID, GID int
	// Workspace is the host's directory that is mounted at WorkspaceDir.
	Workspace  string
	Attachment Attachment
	// Cell is the cell whose network the sandbox joins, where it is attached ByCell.
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

// OnHost describes a program of the entrypoint that runs in the host's network
// namespace, to see what reaches the host: part of the proof of the boundary,
// never of a run.
type OnHost struct {
	Name  string // identifies the program; part of its name
	Image string // an image with the entrypoint
	// UID and GID are those of the agent; never 0.
	UID, GID int
	// Args follow the entrypoint.
	Args []string
}
