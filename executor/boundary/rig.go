package boundary

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"sallyport/entrypoint/probe"
	"sallyport/entrypoint/wire"
	"sallyport/executor/backend"
	"sallyport/firewall/account"
	"sallyport/gate/control"
)

// program is the entrypoint in every image, which is prober and canary as well.
const program = "/sallyport/entrypoint"

// settle is the time that a packet may take to be seen after its prober is done.
const settle = 200 * time.Millisecond

// sandboxLimits suffice for the programs of a check.
var sandboxLimits = backend.Limits{
	MemoryBytes: 256 << 20, PIDs: 256, CPUs: 1, TmpBytes: 16 << 20, NoFile: 1024,
	StopGrace: time.Second, ShmSizeBytes: 1 << 20,
}

// A rig is the scene of one check: the prober in cell here; a canary in cell there; a
// canary on the host. The canaries make their positive controls themselves.
type rig struct {
	*Checker
	nonce string

	here, there side
	self        *probe.Self // the prober's, before it has tried anything
	onHost      *listener
	engine      string // its name

	mu        sync.Mutex         // guards what follows
	sandboxes []*backend.Sandbox // to be removed
	dirs      []string
}

// A side is a cell and what is in it.
type side struct {
	cell     backend.Cell
	acquired bool
	leased   bool
	receipt  account.Receipt // once the lease has ended
	dirty    bool            // not to be lent again

	session *wire.Session
	canary  *listener // there
}

// build makes everything, the slow parts at the same time.
func (r *rig) build(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() (err error) {
		if err := r.lease(ctx, &r.here, "here"); err != nil {
			return err
		}
		if r.here.session, err = r.sandbox(ctx, r.here.cell, "here"); err != nil {
			return err
		}
		r.self, err = tell(func(a []attempt) (map[string]probe.Result, error) { return probeInSandbox(ctx, r.here.session, a) })
		return err
	})
	group.Go(func() (err error) {
		if err := r.lease(ctx, &r.there, "there"); err != nil {
			return err
		}
		if r.there.session, err = r.sandbox(ctx, r.there.cell, "there"); err != nil {
			return err
		}
		r.there.canary, err = inSandbox(ctx, r.there.session)
		return err
	})
	group.Go(func() error {
		canary, err := r.hostProgram(ctx, "canary", "canary")
		if err != nil {
			return err
		}
		r.onHost, err = newListener(ctx, canary.Stdin, canary.Stdout)
		if err != nil {
			return fmt.Errorf("canary on the host: %w", err)
		}
		return nil
	})
	group.Go(func() (err error) {
		if r.engine, err = r.Engine(ctx); err != nil {
			return fmt.Errorf("name the engine: %w", err)
		}
		return nil
	})
	return group.Wait()
}

// lease takes a cell and opens the gate's listeners in it.
func (r *rig) lease(ctx context.Context, s *side, name string) error {
	cell, err := r.Cells.Acquire(ctx)
	if err != nil {
		return err
	}
	s.cell, s.acquired = cell, true
	_, err = r.Gate.Lease(ctx, cell.ID, control.Lease{
		Run: r.run(name), Policy: r.Policy, Address: cell.Gate, Prefix: cell.Prefix, Pool: cell.Pool,
	})
	if err != nil {
		s.dirty = true // the lease may have come about although the call failed
		return fmt.Errorf("lease cell %s at the gate: %w", cell.ID, err)
	}
	s.leased = true
	return nil
}

func (r *rig) run(name string) string { return "boundary-" + r.nonce + "-" + name }

// sandbox starts a sandbox as a run would and opens its wire.
func (r *rig) sandbox(ctx context.Context, cell backend.Cell, name string) (*wire.Session, error) {
	dir, err := os.MkdirTemp(r.Workspaces, "boundary-")
	if err != nil {
		return nil, fmt.Errorf("make a workspace: %w", err)
	}
	r.mu.Lock()
	r.dirs = append(r.dirs, dir)
	r.mu.Unlock()
	if err := os.Chmod(dir, 0o755); err != nil { // the agent enters it and writes nothing
		return nil, fmt.Errorf("make a workspace: %w", err)
	}
	started, err := r.Backend.Start(ctx, backend.Spec{
		Name: r.run(name), Image: r.Image, UID: r.UID, GID: r.GID,
		Workspace: dir, Attachment: backend.ByCell, Cell: cell, Limits: sandboxLimits,
	})
	if err != nil {
		return nil, err
	}
	r.keep(started)
	return wire.Open(ctx, started.Stdin, started.Stdout)
}

// hostProgram starts a program of the entrypoint on the host's network.
func (r *rig) hostProgram(ctx context.Context, name string, args ...string) (*backend.Sandbox, error) {
	started, err := r.Backend.StartOnHost(ctx, backend.OnHost{
		Name: r.run(name), Image: r.Image, UID: r.UID, GID: r.GID, Args: args,
	})
	if err != nil {
		return nil, err
	}
	r.keep(started)
	return started, nil
}

func (r *rig) keep(s *backend.Sandbox) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sandboxes = append(r.sandboxes, s)
}

// observe has the controls and the attempts made and collects what both sides say.
func (r *rig) observe(ctx context.Context) (*observation, error) {
	p := r.plan()
	saw := &observation{plan: p, herePrefix: r.here.cell.Prefix, self: r.self, host: r.onHost.hello.Tables}
	group, groupCtx := errgroup.WithContext(ctx)
	group.Go(func() (err error) {
		saw.fromHost, err = r.onHost.probe(groupCtx, p.onHost)
		return err
	})
	group.Go(func() (err error) {
		saw.fromBeside, err = r.there.canary.probe(groupCtx, p.beside)
		return err
	})
	group.Go(func() (err error) {
		saw.fromHere, err = probeInSandbox(groupCtx, r.here.session, p.here)
		return err
	})
	if err := group.Wait(); err != nil {
		return nil, err
	}
	select {
	case <-time.After(settle):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if err := r.collect(ctx, saw); err != nil {
		return nil, err
	}
	saw.hereReceipt, saw.thereReceipt = r.here.receipt, r.there.receipt
	return saw, nil
}

// collect ends the canaries and the leases, all at the same time, and takes what they
// have to say.
func (r *rig) collect(ctx context.Context, saw *observation) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() (err error) {
		now, err := tell(func(a []attempt) (map[string]probe.Result, error) { return r.onHost.probe(ctx, a) })
		if err == nil {
			saw.hostHits, err = r.onHost.end(ctx)
		}
		if err == nil {
			err = saw.plan.forgetVanished(now, saw.hostHits)
		}
		if err != nil {
			return fmt.Errorf("canary on the host: %w", err)
		}
		return nil
	})
	group.Go(func() (err error) {
		if saw.cellHits, err = r.there.canary.end(ctx); err != nil {
			return fmt.Errorf("canary in the other cell: %w", err)
		}
		return nil
	})
	for _, s := range []*side{&r.here, &r.there} {
		group.Go(func() error { return r.release(ctx, s) })
	}
	return group.Wait()
}

func (r *rig) release(ctx context.Context, s *side) error {
	if !s.leased {
		return nil
	}
	final, err := r.Gate.Release(ctx, s.cell.ID)
	if err != nil {
		s.dirty = true
		return fmt.Errorf("end the lease of cell %s: %w", s.cell.ID, err)
	}
	s.leased, s.receipt = false, final.Receipt
	return nil
}

// remove takes the scene apart. It goes on when ctx has ended.
func (r *rig) remove(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit)
	defer cancel()
	for _, s := range []*wire.Session{r.here.session, r.there.session} {
		if s != nil {
			s.Close()
		}
	}
	errs := make([]error, len(r.sandboxes))
	var group sync.WaitGroup
	for i, s := range r.sandboxes {
		group.Go(func() { errs[i] = s.Remove(ctx) })
	}
	group.Wait()
	stuck := errors.Join(errs...) != nil
	for _, s := range []*side{&r.here, &r.there} {
		if !s.acquired {
			continue
		}
		if s.dirty && !s.leased {
			_, _ = r.Gate.Release(ctx, s.cell.ID) // the cell goes away in any case
		}
		errs = append(errs, r.release(ctx, s))
		if stuck || s.dirty {
			r.Cells.Discard(s.cell)
		} else {
			r.Cells.Put(s.cell)
		}
	}
	for _, dir := range r.dirs {
		errs = append(errs, os.RemoveAll(dir))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("take the scene apart: %w", err)
	}
	return nil
}
