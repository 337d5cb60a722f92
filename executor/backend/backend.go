// Package backend is what the executor asks of whatever isolates sandboxes: start one,
// hand over its two streams, wait for it, end it; and what it has to know of it: how
// strong it is, how its sandboxes reach the gate, whether it holds. Its subpackages are
// the implementations; a Registry has those that the operator has set up.
package backend

import (
	"context"

	"sallyport/executor/api"
)

// A Backend is one way to isolate sandboxes. All fields are required unless they say
// otherwise.
type Backend struct {
	// Name is what requests, results and records call it.
	Name string
	// Model is its kind of isolation, in the words of RFC 0035: container, process, vm
	// or wasm.
	Model    string
	Strength Strength
	// Attachments are those by which its sandboxes can reach the gate, the preferred one
	// first.
	Attachments []Attachment
	Sandboxes   Starter
	// Cells are those of its sandboxes; nil unless they can reach the gate ByCell.
	Cells Cells
	// Usable says why it cannot be used now, or nil.
	Usable   func(ctx context.Context) error
	Boundary Boundary
	// Sweep removes what an executor that died has left of its sandboxes and cells. If
	// nil, nothing outlives the executor.
	Sweep func(ctx context.Context) (Swept, error)
}

// Isolation is what results say of the backend.
func (b Backend) Isolation() api.Isolation { return api.Isolation{Backend: b.Name, Model: b.Model} }

// A Strength says what somebody inside a sandbox has to break to get out. The greater one
// is the stronger.
type Strength int

// The strengths.
const (
	Process    Strength = iota + 1 // what the host's kernel checks of a process
	Container                      // namespaces, control groups and filtered system calls of the host's kernel
	UserKernel                     // a kernel of the sandbox's own, in user space
	Machine                        // a guest's kernel, and the hypervisor
)

// An Attachment is how a sandbox reaches the gate.
type Attachment string

// The attachments.
const (
	ByCell  Attachment = "cell"  // it joins the filtered network of a cell
	ByRelay Attachment = "relay" // it has no network; PID 1 hands connections to the gate
	ByNone  Attachment = "none"  // not at all
)

// A Starter starts sandboxes.
type Starter interface {
	// Start starts one sandbox whose PID 1 is the entrypoint and returns once its
	// streams are attached; it does not wait for the ready frame. When it returns
	// an error nothing of the sandbox is left.
	Start(ctx context.Context, spec Spec) (*Sandbox, error)
}

// A Boundary proves that nothing gets out of a sandbox but by its attachment.
type Boundary interface {
	// Check makes the attempts. An error means that they could not be made.
	Check(ctx context.Context) (api.BoundaryReport, error)
}

// Swept says what a sweep removed.
type Swept struct {
	Sandboxes, Canaries, Keepers, Networks int
	// Cells are the cells of the networks that were removed: whatever leases the
	// gate still holds for them are the caller's to end.
	Cells []string
}

// Add adds what another sweep removed.
func (s *Swept) Add(other Swept) {
	s.Sandboxes += other.Sandboxes
	s.Canaries += other.Canaries
	s.Keepers += other.Keepers
	s.Networks += other.Networks
	s.Cells = append(s.Cells, other.Cells...)
}
