// Package boundary proves, on the engine that will run the sandboxes, that nothing
// gets out of a cell but through the gate: Checker.Check takes two real cells with
// real leases, puts a prober into one and a listener into the other and another
// listener on the host, lets the prober try everything that must not succeed, and
// asks both sides what came of it.
//
// A way counts as open when the prober got an answer or when a listener saw
// anything of it: a datagram can arrive without its sender learning so. Every
// closed way stands beside a positive control (the listeners hear themselves on
// every address, the own gate answers), because a dead network refuses everything.
// A control that fails, or a listener that goes away, is an error: then nothing is
// proven, and nothing may run.
//
// What it does not show: that the addresses of the world beyond the host cannot be
// reached, other than by the routes and packets that lead there. It dials no public
// host; the addresses it tries are the host's own, those of the cells, and the
// documentation ranges of RFC 5737.
package boundary

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"sallyport/entrypoint/probe"
	"sallyport/executor/backend"
	"sallyport/gate/control"
)

// limit bounds a check; taking everything apart has its own limits.
const limit = 20 * time.Second

// A Gate leases cells; *control.Client is one.
type Gate interface {
	Lease(ctx context.Context, id string, l control.Lease) (control.Cell, error)
	Release(ctx context.Context, id string) (control.Cell, error)
}

// A Backend starts sandboxes and, for the proof alone, listeners on the host's
// network; *docker.Backend is one.
type Backend interface {
	backend.Starter
	StartOnHost(ctx context.Context, o backend.OnHost) (*backend.Sandbox, error)
}

// A Checker proves the boundary. All fields are required.
type Checker struct {
	Backend Backend
	Cells   backend.Cells
	Gate    Gate
	// Engine names what isolates, with its version.
	Engine func(ctx context.Context) (string, error)
	// Policy is the policy of the leases. It must allow nothing under .example.
	Policy string
	// Image, UID and GID are those of sandboxes.
	Image    string
	UID, GID int
	// Workspaces is a directory, the same on the engine's host, for the empty
	// workspaces of the check.
	Workspaces string
	// Need is what all runs together may take of the host's tables.
	Need probe.Tables
	// Background counts what goes on after a check has returned: its scene is taken
	// apart while the first runs start.
	Background *sync.WaitGroup
	Log        *slog.Logger
}

func (c *Checker) check() error {
	switch {
	case c.Backend == nil || c.Cells == nil || c.Gate == nil || c.Engine == nil || c.Background == nil || c.Log == nil:
		return errors.New("backend, cells, gate, engine, background and log are required")
	case c.Policy == "" || c.Image == "" || c.Workspaces == "" || c.UID <= 0 || c.GID <= 0:
		return errors.New("policy, image, workspaces and a user that is not root are required")
	}
	return nil
}
