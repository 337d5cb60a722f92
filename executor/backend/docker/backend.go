package docker

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/docker/docker/api/types/container"

	"sallyport/executor/backend"
)

// A Backend starts sandboxes on an engine. NewBackend makes it.
type Backend struct {
	engine  *Engine
	seccomp string
	// imageUID is the user that the agent image itself knows by name.
	imageUID int
}

var _ backend.Starter = (*Backend)(nil)

// NewBackend returns a backend. A sandbox whose user is not imageUID, the agent
// user of the images, is given an /etc/passwd and /etc/group that name it.
func NewBackend(engine *Engine, imageUID int) (*Backend, error) {
	profile, err := seccompProfile()
	if err != nil {
		return nil, err
	}
	return &Backend{engine: engine, seccomp: string(profile), imageUID: imageUID}, nil
}

// Start implements backend.Starter. It never pulls an image.
func (b *Backend) Start(ctx context.Context, spec backend.Spec) (*backend.Sandbox, error) {
	if err := check(spec); err != nil {
		return nil, fmt.Errorf("docker: sandbox: %w", err)
	}
	img, err := b.engine.image(ctx, spec.Image)
	if err != nil {
		return nil, err
	}
	files, err := b.files(spec)
	if err != nil {
		return nil, err
	}
	config, host := b.container(spec, img, files)
	s, err := b.engine.launch(ctx, b.engine.stack+"-sandbox-"+spec.Name, config, host)
	if err != nil {
		return nil, err
	}
	if err := b.engine.limitTCP(s.id, spec.Limits); err != nil {
		return nil, errors.Join(err, s.Remove(ctx))
	}
	return s.handle(), nil
}

// check refuses a spec that would start something other than a sandbox: the zero
// value of every field that bounds is an error, not a default.
func check(s backend.Spec) error {
	l := s.Limits
	switch {
	case !validName.MatchString(s.Name):
		return fmt.Errorf("run %q is not an identifier", s.Name)
	case s.Image == "":
		return errors.New("no image")
	case s.UID <= 0 || s.GID <= 0:
		return fmt.Errorf("user %d:%d: a sandbox never runs as root", s.UID, s.GID)
	case !filepath.IsAbs(s.Workspace) || filepath.Clean(s.Workspace) == "/":
		return fmt.Errorf("workspace %q is not an absolute directory", s.Workspace)
	case s.Attachment != backend.ByCell:
		return fmt.Errorf("attachment %q: a sandbox has a cell, and nothing else", s.Attachment)
	case !validName.MatchString(s.Cell.ID) || s.Cell.Holder == "":
		return fmt.Errorf("no cell (%q)", s.Cell.ID)
	case !s.Cell.Gate.IsValid() || !s.Cell.Sandbox.IsValid():
		return fmt.Errorf("cell %s has no addresses", s.Cell.ID)
	case l.MemoryBytes <= 0, l.PIDs <= 0, l.CPUs <= 0, l.TmpBytes <= 0, l.NoFile <= 0, l.ShmSizeBytes <= 0:
		return fmt.Errorf("limits %+v: all are required", l)
	}
	return nil
}

// launch creates a container, attaches to its streams and starts it. When it fails
// nothing is left.
func (e *Engine) launch(
	ctx context.Context, name string, config *container.Config, host *container.HostConfig,
) (_ *sandbox, err error) {
	began := time.Now()
	id, err := e.create(ctx, name, config, host, nil)
	if err != nil {
		return nil, fmt.Errorf("docker: create %s: %w", name, err)
	}
	defer func() {
		if err != nil {
			ctx, cancel := steady(ctx)
			defer cancel()
			err = errors.Join(err, e.removeContainer(ctx, id))
		}
	}()
	createdAt := time.Now()
	streams, err := e.api.ContainerAttach(ctx, id, container.AttachOptions{
		Stream: true, Stdin: true, Stdout: true, Stderr: true,
	})
	if err != nil {
		return nil, fmt.Errorf("docker: attach to %s: %w", name, err)
	}
	attachedAt := time.Now()
	s := newSandbox(e, id, streams)
	if err := e.api.ContainerStart(ctx, id, container.StartOptions{}); err != nil {
		s.detach()
		return nil, fmt.Errorf("docker: start %s: %w", name, err)
	}
	e.log.Debug("sandbox started", "name", name, "container", id,
		"create_ms", createdAt.Sub(began).Milliseconds(),
		"attach_ms", attachedAt.Sub(createdAt).Milliseconds(),
		"start_ms", time.Since(attachedAt).Milliseconds())
	return s, nil
}
