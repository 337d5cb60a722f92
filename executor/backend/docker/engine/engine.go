// Package engine is a Docker engine as one stack uses it: what it makes there bears the
// stack's labels, is confined as far as the engine can, and is removed with all that is
// connected to it. It knows which engines are known to leak, and removes what an earlier
// life of the stack left behind.
//
// It speaks to engines from 20.10 (API 1.41) on; Check says what is known against the one
// at hand.
package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"regexp"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/filters"
	"github.com/docker/docker/api/types/network"
	"github.com/docker/docker/api/types/system"
	"github.com/docker/docker/client"
)

// Labels of every engine object that the project makes.
const (
	LabelStack = "org.sallyport.stack"
	LabelRole  = "org.sallyport.role"
	LabelCell  = "org.sallyport.cell"
	LabelRun   = "org.sallyport.run"
)

// The values of LabelRole.
const (
	RoleGate    = "gate"
	RoleCell    = "cell" // a keeper
	RoleSandbox = "sandbox"
	RoleCanary  = "canary"
	RoleNetwork = "network"
)

// Hostname is that of every sandbox: it says nothing about the run.
const Hostname = "sandbox"

// steadyTimeout bounds what is not given up with its caller's context; see Steady.
const steadyTimeout = time.Minute

// Config is what Open needs. All fields are required.
type Config struct {
	// Stack names everything of this installation on the engine; another stack's
	// objects are never touched.
	Stack string
	// State is the executor's state directory, an absolute path that is the same
	// on the engine's host.
	State string
	Log   *slog.Logger
}

// An Engine is a Docker engine as one stack uses it.
type Engine struct {
	API *client.Client
	Config
	info system.Info
	// limitsTCP says that sandboxes get a limit of memory for TCP alone.
	limitsTCP bool
}

// ValidName is what may become part of an object's name, a label or a path.
var ValidName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9-]{0,62}$`)

// Open connects to the engine that the environment names (DOCKER_HOST, else
// /var/run/docker.sock) and asks it what it is.
func Open(ctx context.Context, cfg Config) (*Engine, error) {
	switch {
	case !ValidName.MatchString(cfg.Stack):
		return nil, fmt.Errorf("docker: stack %q: use letters, digits and hyphens, 63 at most", cfg.Stack)
	case !filepath.IsAbs(cfg.State):
		return nil, fmt.Errorf("docker: state directory %q is not absolute", cfg.State)
	case cfg.Log == nil:
		return nil, errors.New("docker: no logger")
	}
	api, err := client.NewClientWithOpts(client.FromEnv, client.WithAPIVersionNegotiation())
	if err != nil {
		return nil, fmt.Errorf("docker: client: %w", err)
	}
	info, err := api.Info(ctx)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("docker: ask the engine at %s: %w", api.DaemonHost(), err), api.Close())
	}
	return &Engine{
		API: api, Config: cfg, info: info,
		limitsTCP: info.CgroupVersion == "1" && mayLimitTCP(),
	}, nil
}

// Close closes the connections to the engine.
func (e *Engine) Close() error { return e.API.Close() }

// Ping says why the engine cannot be used now, or nil.
func (e *Engine) Ping(ctx context.Context) error {
	if _, err := e.API.Ping(ctx); err != nil {
		return fmt.Errorf("docker: %w", err)
	}
	return nil
}

// Labels are those of an object of the given role; cell and run may be empty. All
// four keys are always set, so that an image's own labels cannot stand in.
func (e *Engine) Labels(role, cell, run string) map[string]string {
	return map[string]string{LabelStack: e.Stack, LabelRole: role, LabelCell: cell, LabelRun: run}
}

// Steady is the context of a call that must not be given up half done: it outlives
// ctx, but not steadyTimeout. A removal must not end with the run that is cancelled;
// and a creation that is given up may still come about, with nobody to remove it.
func Steady(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), steadyTimeout)
}

// Create creates a container. It is not given up with ctx, but not begun after it.
func (e *Engine) Create(
	ctx context.Context, name string, config *container.Config, host *container.HostConfig, endpoints *network.NetworkingConfig,
) (id string, err error) {
	if err := ctx.Err(); err != nil {
		return "", err
	}
	ctx, cancel := Steady(ctx)
	defer cancel()
	created, err := e.API.ContainerCreate(ctx, config, host, endpoints, nil, name)
	return created.ID, err
}

// Mine matches this stack's objects of a role.
func (e *Engine) Mine(role string) filters.Args {
	return filters.NewArgs(
		filters.Arg("label", LabelStack+"="+e.Stack),
		filters.Arg("label", LabelRole+"="+role),
	)
}

// CellDir is where the files of a cell are on the host.
func (e *Engine) CellDir(id string) string { return filepath.Join(e.State, "cells", id) }
