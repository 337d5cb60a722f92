// Package docker isolates sandboxes with a Docker engine: it makes cells ahead
// (an internal network, the gate's address in it and a keeper that owns the
// network namespace and filters it), starts sandboxes in them, and removes what
// an earlier life of this stack left behind.
//
// What it guarantees of a sandbox: PID 1 is the entrypoint, started as the agent's
// user, never root, without capabilities, under a seccomp profile narrower than
// the engine's, on a read-only root, with bounded memory (no swap), processes,
// cpu, tmpfs and descriptors; of the host it sees one directory, the run's
// workspace; nothing secret is in the container's configuration; the engine keeps
// no log of its output. What it does not: disk use in the workspace is the
// executor's to bound, and the kernel is shared with the host.
//
//	engine, err := docker.Open(ctx, docker.Config{Stack: "sallyport", State: dir, Log: log})
//	cells := docker.NewCells(engine, docker.CellsConfig{Image: gateImage, Pool: pool, Ahead: 2})
//	go cells.Run(ctx)
//	cell, err := cells.Acquire(ctx)
//	sandbox, err := docker.NewBackend(engine, agentUID).Start(ctx, spec)
//
// It speaks to engines from 20.10 (API 1.41) on; Check says what is known against
// the one at hand.
package docker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"regexp"
	"time"

	"github.com/docker/docker/api/types/container"
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

// steadyTimeout bounds what is not given up with its caller's context; see steady.
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
	api   *client.Client
	info  system.Info
	stack string
	state string
	log   *slog.Logger
	// limitsTCP says that sandboxes get a limit of memory for TCP alone.
	limitsTCP bool
}

// validName is what may become part of an object's name, a label or a path.
var validName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9-]{0,62}$`)

// Open connects to the engine that the environment names (DOCKER_HOST, else
// /var/run/docker.sock) and asks it what it is.
func Open(ctx context.Context, cfg Config) (*Engine, error) {
	switch {
	case !validName.MatchString(cfg.Stack):
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
		api: api, info: info, stack: cfg.Stack, state: cfg.State, log: cfg.Log,
		limitsTCP: info.CgroupVersion == "1" && mayLimitTCP(),
	}, nil
}

// Close closes the connections to the engine.
func (e *Engine) Close() error { return e.api.Close() }

// Ping says why the engine cannot be used now, or nil.
func (e *Engine) Ping(ctx context.Context) error {
	if _, err := e.api.Ping(ctx); err != nil {
		return fmt.Errorf("docker: %w", err)
	}
	return nil
}

// labels are those of an object of the given role; cell and run may be empty. All
// four keys are always set, so that an image's own labels cannot stand in.
func (e *Engine) labels(role, cell, run string) map[string]string {
	return map[string]string{LabelStack: e.stack, LabelRole: role, LabelCell: cell, LabelRun: run}
}

// steady is the context of a call that must not be given up half done: it outlives
// ctx, but not steadyTimeout. A removal must not end with the run that is cancelled;
// and a creation that is given up may still come about, with nobody to remove it.
func steady(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), steadyTimeout)
}

// create creates a container. It is not given up with ctx, but not begun after it.
func (e *Engine) create(
	ctx context.Context, name string, config *container.Config, host *container.HostConfig, endpoints *network.NetworkingConfig,
) (id string, err error) {
	if err := ctx.Err(); err != nil {
		return "", err
	}
	ctx, cancel := steady(ctx)
	defer cancel()
	created, err := e.api.ContainerCreate(ctx, config, host, endpoints, nil, name)
	return created.ID, err
}
