package engine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sallyport/executor/backend"
	"slices"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/network"
	"golang.org/x/sync/errgroup"
)

// Sweep removes what an earlier life of this stack left on the engine: sandboxes,
// canaries and keepers in any state, and the networks of cells, from which the gate
// is cut off first. It goes by labels alone, and touches no other stack's objects
// and neither gate nor executor. It must not run while cells are in use.
func (e *Engine) Sweep(ctx context.Context) (backend.Swept, error) {
	var s backend.Swept
	var errs []error
	// Sandboxes first: they live in the namespaces of the keepers.
	for _, role := range []struct {
		name  string
		count *int
	}{{RoleSandbox, &s.Sandboxes}, {RoleCanary, &s.Canaries}, {RoleCell, &s.Keepers}} {
		n, err := e.sweepContainers(ctx, role.name)
		*role.count = n
		errs = append(errs, err)
	}
	cells, err := e.sweepNetworks(ctx)
	s.Networks, s.Cells = len(cells), cells
	errs = append(errs, err, os.RemoveAll(filepath.Join(e.State, "cells")))
	if err := errors.Join(errs...); err != nil {
		return s, fmt.Errorf("docker: sweep: %w", err)
	}
	return s, nil
}

func (e *Engine) sweepContainers(ctx context.Context, role string) (int, error) {
	found, err := e.API.ContainerList(ctx, container.ListOptions{All: true, Filters: e.Mine(role)})
	if err != nil {
		return 0, fmt.Errorf("list containers of role %s: %w", role, err)
	}
	removed := make([]error, len(found))
	var group errgroup.Group
	group.SetLimit(Removals)
	for i, c := range found {
		group.Go(func() error {
			removed[i] = e.RemoveContainer(ctx, c.ID)
			return nil
		})
	}
	group.Wait()
	n := 0
	for _, err := range removed {
		if err == nil {
			n++
		}
	}
	return n, errors.Join(removed...)
}

// sweepNetworks returns the cells whose networks it removed, some at a time: nothing
// starts before all are gone.
func (e *Engine) sweepNetworks(ctx context.Context) ([]string, error) {
	mine := e.Mine(RoleNetwork)
	mine.Add("label", LabelCell) // not the stack's other networks
	found, err := e.API.NetworkList(ctx, network.ListOptions{Filters: mine})
	if err != nil {
		return nil, fmt.Errorf("list networks: %w", err)
	}
	found = slices.DeleteFunc(found, func(n network.Summary) bool { return n.Labels[LabelCell] == "" })
	errs := make([]error, len(found))
	var group errgroup.Group
	group.SetLimit(Removals)
	for i, n := range found {
		group.Go(func() error {
			errs[i] = e.RemoveNetwork(ctx, n.ID)
			return nil
		})
	}
	group.Wait()
	var cells []string
	for i, n := range found {
		if errs[i] == nil {
			cells = append(cells, n.Labels[LabelCell])
		}
	}
	return cells, errors.Join(errs...)
}
