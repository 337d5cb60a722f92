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
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"sallyport/entrypoint/probe"
	"sallyport/executor/api"
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

// Check makes one proof. The error says why there is none; a report says whether
// every probe was held, and which were not. Once Background is done nothing of the
// check is left, or the log says what.
func (c *Checker) Check(ctx context.Context) (_ api.BoundaryReport, err error) {
	began := time.Now()
	defer func() {
		if err != nil {
			err = fmt.Errorf("boundary check: %w", err)
		}
	}()
	if err := c.check(); err != nil {
		return api.BoundaryReport{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	saw, engine, err := c.observe(ctx)
	if err != nil {
		return api.BoundaryReport{}, err
	}
	findings, err := saw.judge()
	if err != nil {
		return api.BoundaryReport{}, err
	}
	report := api.BoundaryReport{Passed: true, Engine: engine, CheckedAt: began.UTC(), Findings: findings}
	report.Warnings = tooSmall(saw.host, c.Need)
	for _, f := range findings {
		report.Passed = report.Passed && f.Passed
	}
	c.Log.Debug("boundary checked", "passed", report.Passed, "ms", time.Since(began).Milliseconds())
	return report, nil
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

// observe sets the scene, has everything tried, and leaves the scene to be taken apart.
func (c *Checker) observe(ctx context.Context) (*observation, string, error) {
	r := &rig{Checker: c, nonce: nonce()}
	defer c.Background.Go(func() {
		if err := r.remove(ctx); err != nil {
			c.Log.Warn("a boundary check has left something behind", "error", err)
		}
	})
	if err := r.build(ctx); err != nil {
		return nil, "", err
	}
	saw, err := r.observe(ctx)
	return saw, r.engine, err
}

// nonce marks everything of one check: names, payloads, objects.
func nonce() string {
	b := make([]byte, 6)
	rand.Read(b) // never fails
	return hex.EncodeToString(b)
}
