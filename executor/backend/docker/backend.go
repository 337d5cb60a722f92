// Package docker isolates sandboxes with a Docker engine: it starts them in the cells of
// package cells, as package engine has an engine confine them.
//
// What it guarantees of a sandbox: PID 1 is the entrypoint, started as the agent's
// user, never root, without capabilities, under a seccomp profile narrower than
// the engine's, on a read-only root, with bounded memory (no swap), processes,
// cpu, tmpfs and descriptors; of the host it sees one directory, the run's
// workspace; nothing secret is in the container's configuration; the engine keeps
// no log of its output. What it does not: disk use in the workspace is the
// executor's to bound, and the kernel is shared with the host.
//
//	on, err := engine.Open(ctx, engine.Config{Stack: "sallyport", State: dir, Log: log})
//	pool, err := cells.NewPool(on, cells.Config{Image: gateImage, Subnets: subnets, Ahead: 2})
//	go pool.Run(ctx)
//	cell, err := pool.Acquire(ctx)
//	sandbox, err := docker.NewBackend(on, agentUID).Start(ctx, spec)
package docker

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"sallyport/executor/backend"
	"sallyport/executor/backend/docker/engine"
)

// A Backend starts sandboxes on an engine. NewBackend makes it.
type Backend struct {
	engine  *engine.Engine
	seccomp string
	// imageUID is the user that the agent image itself knows by name.
	imageUID int
}

var _ backend.Starter = (*Backend)(nil)

// NewBackend returns a backend. A sandbox whose user is not imageUID, the agent
// user of the images, is given an /etc/passwd and /etc/group that name it.
func NewBackend(on *engine.Engine, imageUID int) (*Backend, error) {
	profile, err := seccompProfile()
	if err != nil {
		return nil, err
	}
	return &Backend{engine: on, seccomp: string(profile), imageUID: imageUID}, nil
}

// Start implements backend.Starter. It never pulls an image.
func (b *Backend) Start(ctx context.Context, spec backend.Spec) (*backend.Sandbox, error) {
	if err := check(spec); err != nil {
		return nil, fmt.Errorf("docker: sandbox: %w", err)
	}
	img, err := b.engine.Image(ctx, spec.Image)
	if err != nil {
		return nil, err
	}
	files, err := b.files(spec)
	if err != nil {
		return nil, err
	}
	config, host := b.container(spec, img, files)
	s, err := b.engine.Launch(ctx, b.engine.Stack+"-sandbox-"+spec.Name, config, host)
	if err != nil {
		return nil, err
	}
	if err := b.engine.LimitTCP(s.ID, spec.Limits); err != nil {
		return nil, errors.Join(err, s.Remove(ctx))
	}
	sandbox := s.Sandbox()
	sandbox.ImageDigest = img.ID
	return sandbox, nil
}

// check refuses a spec that would start something other than a sandbox: the zero
// value of every field that bounds is an error, not a default.
func check(s backend.Spec) error {
	l := s.Limits
	switch {
	case !engine.ValidName.MatchString(s.Name):
		return fmt.Errorf("run %q is not an identifier", s.Name)
	case s.Image == "":
		return errors.New("no image")
	case s.UID <= 0 || s.GID <= 0:
		return fmt.Errorf("user %d:%d: a sandbox never runs as root", s.UID, s.GID)
	case !filepath.IsAbs(s.Workspace) || filepath.Clean(s.Workspace) == "/":
		return fmt.Errorf("workspace %q is not an absolute directory", s.Workspace)
	case s.Attachment != backend.ByCell:
		return fmt.Errorf("attachment %q: a sandbox has a cell, and nothing else", s.Attachment)
	case !engine.ValidName.MatchString(s.Cell.ID) || s.Cell.Holder == "":
		return fmt.Errorf("no cell (%q)", s.Cell.ID)
	case !s.Cell.Gate.IsValid() || !s.Cell.Sandbox.IsValid():
		return fmt.Errorf("cell %s has no addresses", s.Cell.ID)
	case l.MemoryBytes <= 0, l.PIDs <= 0, l.CPUs <= 0, l.TmpBytes <= 0, l.NoFile <= 0, l.ShmSizeBytes <= 0:
		return fmt.Errorf("limits %+v: all are required", l)
	}
	return nil
}
