package engine

import (
	"context"
	"fmt"
	"time"

	cerrdefs "github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/filters"
	"github.com/docker/docker/api/types/network"
)

// Removals is how many removals the engine is asked for at once.
const Removals = 4

// RemoveContainer kills a container if it runs and removes it with its anonymous
// volumes. One that is gone, or that somebody else is removing, is no error.
func (e *Engine) RemoveContainer(ctx context.Context, id string) error {
	err := e.API.ContainerRemove(ctx, id, container.RemoveOptions{Force: true, RemoveVolumes: true})
	switch {
	case err == nil, cerrdefs.IsNotFound(err):
		return nil
	case cerrdefs.IsConflict(err):
		return e.awaitRemoval(ctx, id)
	}
	return fmt.Errorf("remove container %s: %w", id, err)
}

// awaitRemoval waits until a removal that is under way has ended. The engine's own
// wait for it misses a removal that ends before the wait begins, so this asks.
func (e *Engine) awaitRemoval(ctx context.Context, id string) error {
	for {
		_, err := e.API.ContainerInspect(ctx, id)
		if cerrdefs.IsNotFound(err) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("wait for the removal of container %s: %w", id, err)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for the removal of container %s: %w", id, ctx.Err())
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// NetworkInspect asks for what is connected as well, and nothing of a swarm.
var NetworkInspect = network.InspectOptions{Scope: "local"}

// RemoveNetwork cuts off whatever is connected to a network and removes it. One
// that is gone is no error.
func (e *Engine) RemoveNetwork(ctx context.Context, id string) error {
	inspected, err := e.API.NetworkInspect(ctx, id, NetworkInspect)
	if cerrdefs.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("inspect network %s: %w", id, err)
	}
	// Asked by its network, the engine lists containers that do not run, too. A gate
	// that is down must be cut off with the others: left with a network that is
	// gone, it could not start again.
	members, err := e.API.ContainerList(ctx, container.ListOptions{All: true, Filters: filters.NewArgs(filters.Arg("network", id))})
	if err != nil {
		return fmt.Errorf("list the containers of network %s: %w", inspected.Name, err)
	}
	for _, member := range members {
		// A member that left in between is reported as not found or, by older
		// engines, as forbidden; the removal below tells whether it matters.
		if err := e.API.NetworkDisconnect(ctx, id, member.ID, true); err != nil {
			e.Log.Debug("disconnect", "network", inspected.Name, "container", member.ID, "error", err)
		}
	}
	if err := e.API.NetworkRemove(ctx, id); err != nil && !cerrdefs.IsNotFound(err) {
		return fmt.Errorf("remove network %s: %w", inspected.Name, err)
	}
	return nil
}
