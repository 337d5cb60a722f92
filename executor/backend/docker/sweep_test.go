package docker_test

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/network"

	"sallyport/executor/backend/docker/dockertest"
	"sallyport/executor/backend/docker/engine"
)

// TestSweep finds two stacks, of which one was killed at work.
//
// probe: L1, L5, L12
// oracle: the engine's list of objects: ours are gone, the other stack's sandbox works
func TestSweep(t *testing.T) {
	mine, other := dockertest.New(t), dockertest.New(t)
	gate := mine.EchoGate()
	other.EchoGate()

	// The other stack has a sandbox at work, in whose name ours is a prefix or not:
	// only labels count.
	otherCell := acquire(t, other.Cells(0))
	otherSandbox, session := start(t, other, other.Spec(otherCell))

	// Ours was killed at work: a running sandbox, one that has exited, one that never
	// started, a canary, a cell whose keeper has died, and a cell that is half made.
	cells := mine.Cells(0)
	a, b := acquire(t, cells), acquire(t, cells)
	start(t, mine, mine.Spec(a))
	_, exited := start(t, mine, mine.Spec(b))
	exited.Close()
	for _, role := range []string{engine.RoleSandbox, engine.RoleCanary} {
		if _, err := mine.API.ContainerCreate(t.Context(), &container.Config{
			Image: mine.AgentImage, Entrypoint: []string{"/tool", "sleep"}, Labels: mine.Labels(role),
		}, nil, nil, nil, ""); err != nil {
			t.Fatal(err)
		}
	}
	if err := mine.API.ContainerKill(t.Context(), b.Holder, "KILL"); err != nil {
		t.Fatal(err)
	}
	labels := mine.Labels(engine.RoleNetwork)
	labels[engine.LabelCell] = "half"
	if _, err := mine.API.NetworkCreate(t.Context(), mine.Name+"-cell-half", network.CreateOptions{Internal: true, Labels: labels}); err != nil {
		t.Fatal(err)
	}
	// The stack's own network that is no cell stays, as does the gate.
	if _, err := mine.API.NetworkCreate(t.Context(), mine.Name+"-egress", network.CreateOptions{Labels: mine.Labels(engine.RoleNetwork)}); err != nil {
		t.Fatal(err)
	}

	swept, err := mine.Engine.Sweep(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(swept.Cells)
	wantCells := []string{a.ID, b.ID, "half"}
	slices.Sort(wantCells)
	if swept.Sandboxes != 3 || swept.Canaries != 1 || swept.Keepers != 2 || swept.Networks != 3 || !slices.Equal(swept.Cells, wantCells) {
		t.Errorf("swept %+v", swept)
	}
	if left := mine.Containers(""); len(left) != 1 || left[0].ID != gate || left[0].State != "running" {
		t.Errorf("containers left: %v", left)
	}
	if left := mine.Networks(); len(left) != 1 || left[0].Name != mine.Name+"-egress" {
		t.Errorf("networks left: %v", left)
	}
	if _, err := os.Stat(filepath.Join(mine.State, "cells")); !os.IsNotExist(err) {
		t.Errorf("files of cells are left: %v", err)
	}

	if out, _ := run(t, session, "cat", "/etc/hosts"); out == "" {
		t.Errorf("the other stack's sandbox %s does not work any more", otherSandbox.ID)
	}
	if len(other.Containers("")) != 3 || len(other.Networks()) != 1 {
		t.Error("something of the other stack is gone")
	}
	if again, err := mine.Engine.Sweep(t.Context()); err != nil || again.Sandboxes+again.Canaries+again.Keepers+again.Networks != 0 {
		t.Errorf("again: %+v, %v", again, err)
	}
}
