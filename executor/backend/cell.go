package backend

import (
	"context"
	"net/netip"
)

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

// Cells makes cells ahead and lends them, one sandbox after another.
type Cells interface {
	// Acquire returns a cell that nobody uses, making one if none is ready.
	Acquire(ctx context.Context) (Cell, error)
	// Put gives a cell back for the next sandbox; Discard takes it apart because
	// something about it is wrong.
	Put(c Cell)
	Discard(c Cell)
}
