package boundary

import (
	"context"
	"crypto/rand"
	"encoding/hex"
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

// arrival is the time that a packet may take to be seen after its prober is done.
const arrival = 200 * time.Millisecond

// sandboxLimits suffice for the programs of a check.
var sandboxLimits = backend.Limits{
	MemoryBytes: 256 << 20, PIDs: 256, CPUs: 1, TmpBytes: 16 << 20, NoFile: 1024,
	StopGrace: time.Second, ShmSizeBytes: 1 << 20,
}

// A scene is set for one check: the prober in cell here; a canary in cell there; a
// canary on the host. The canaries make their positive controls themselves.
type scene struct {
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
func (s *scene) build(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() (err error) {
		if err := s.lease(ctx, &s.here, "here"); err != nil {
			return err
		}
		if s.here.session, err = s.sandbox(ctx, s.here.cell, "here"); err != nil {
			return err
		}
		s.self, err = tell(func(a []trial) (map[string]probe.Result, error) { return probeInSandbox(ctx, s.here.session, a) })
		return err
	})
	group.Go(func() (err error) {
		if err := s.lease(ctx, &s.there, "there"); err != nil {
			return err
		}
		if s.there.session, err = s.sandbox(ctx, s.there.cell, "there"); err != nil {
			return err
		}
		s.there.canary, err = inSandbox(ctx, s.there.session)
		return err
	})
	group.Go(func() error {
		canary, err := s.hostProgram(ctx, "canary", "canary")
		if err != nil {
			return err
		}
		s.onHost, err = newListener(ctx, canary.Stdin, canary.Stdout)
		if err != nil {
			return fmt.Errorf("canary on the host: %w", err)
		}
		return nil
	})
	group.Go(func() (err error) {
		if s.engine, err = s.Engine(ctx); err != nil {
			return fmt.Errorf("name the engine: %w", err)
		}
		return nil
	})
	return group.Wait()
}

// lease takes a cell and opens the gate's listeners in it.
func (s *scene) lease(ctx context.Context, at *side, name string) error {
	cell, err := s.Cells.Acquire(ctx)
	if err != nil {
		return err
	}
	at.cell, at.acquired = cell, true
	_, err = s.Gate.Lease(ctx, cell.ID, control.Lease{
		Run: s.run(name), Policy: s.Policy, Address: cell.Gate, Prefix: cell.Prefix, Pool: cell.Pool,
	})
	if err != nil {
		at.dirty = true // the lease may have come about although the call failed
		return fmt.Errorf("lease cell %s at the gate: %w", cell.ID, err)
	}
	at.leased = true
	return nil
}

func (s *scene) run(name string) string { return "boundary-" + s.nonce + "-" + name }

// sandbox starts a sandbox as a run would and opens its wire.
func (s *scene) sandbox(ctx context.Context, cell backend.Cell, name string) (*wire.Session, error) {
	dir, err := os.MkdirTemp(s.Workspaces, "boundary-")
	if err != nil {
		return nil, fmt.Errorf("make a workspace: %w", err)
	}
	s.mu.Lock()
	s.dirs = append(s.dirs, dir)
	s.mu.Unlock()
	if err := os.Chmod(dir, 0o755); err != nil { // the agent enters it and writes nothing
		return nil, fmt.Errorf("make a workspace: %w", err)
	}
	started, err := s.Backend.Start(ctx, backend.Spec{
		Name: s.run(name), Image: s.Image, UID: s.UID, GID: s.GID,
		Workspace: dir, Attachment: backend.ByCell, Cell: cell, Limits: sandboxLimits,
	})
	if err != nil {
		return nil, err
	}
	s.toRemove(started)
	return wire.Open(ctx, started.Stdin, started.Stdout)
}

// hostProgram starts a program of the entrypoint on the host's network.
func (s *scene) hostProgram(ctx context.Context, name string, args ...string) (*backend.Sandbox, error) {
	started, err := s.Backend.StartOnHost(ctx, backend.OnHost{
		Name: s.run(name), Image: s.Image, UID: s.UID, GID: s.GID, Args: args,
	})
	if err != nil {
		return nil, err
	}
	s.toRemove(started)
	return started, nil
}

func (s *scene) toRemove(sandbox *backend.Sandbox) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sandboxes = append(s.sandboxes, sandbox)
}

// observe has the trials made and collects what both sides say.
func (s *scene) observe(ctx context.Context) (*observation, error) {
	all := newTrials(surroundings{
		nonce: s.nonce, here: s.here.cell, there: s.there.cell, onHost: s.onHost.hello, beside: s.there.canary.hello,
	})
	saw := &observation{trials: all, herePrefix: s.here.cell.Prefix, self: s.self, host: s.onHost.hello.Tables}
	group, groupCtx := errgroup.WithContext(ctx)
	group.Go(func() (err error) {
		saw.fromHost, err = s.onHost.probe(groupCtx, all.onHost)
		return err
	})
	group.Go(func() (err error) {
		saw.fromBeside, err = s.there.canary.probe(groupCtx, all.beside)
		return err
	})
	group.Go(func() (err error) {
		saw.fromHere, err = probeInSandbox(groupCtx, s.here.session, all.here)
		return err
	})
	if err := group.Wait(); err != nil {
		return nil, err
	}
	select {
	case <-time.After(arrival):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if err := s.collect(ctx, saw); err != nil {
		return nil, err
	}
	saw.hereReceipt, saw.thereReceipt = s.here.receipt, s.there.receipt
	return saw, nil
}

// collect ends the canaries and the leases, all at the same time, and takes what they
// have to say.
func (s *scene) collect(ctx context.Context, saw *observation) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() (err error) {
		now, err := tell(func(a []trial) (map[string]probe.Result, error) { return s.onHost.probe(ctx, a) })
		if err == nil {
			saw.hostHits, err = s.onHost.end(ctx)
		}
		if err == nil {
			err = saw.trials.forgetVanished(now, saw.hostHits)
		}
		if err != nil {
			return fmt.Errorf("canary on the host: %w", err)
		}
		return nil
	})
	group.Go(func() (err error) {
		if saw.cellHits, err = s.there.canary.end(ctx); err != nil {
			return fmt.Errorf("canary in the other cell: %w", err)
		}
		return nil
	})
	for _, at := range []*side{&s.here, &s.there} {
		group.Go(func() error { return s.release(ctx, at) })
	}
	return group.Wait()
}

func (s *scene) release(ctx context.Context, at *side) error {
	if !at.leased {
		return nil
	}
	final, err := s.Gate.Release(ctx, at.cell.ID)
	if err != nil {
		at.dirty = true
		return fmt.Errorf("end the lease of cell %s: %w", at.cell.ID, err)
	}
	at.leased, at.receipt = false, final.Receipt
	return nil
}

// remove takes the scene apart. It goes on when ctx has ended.
func (s *scene) remove(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit)
	defer cancel()
	for _, session := range []*wire.Session{s.here.session, s.there.session} {
		if session != nil {
			session.Close()
		}
	}
	errs := make([]error, len(s.sandboxes))
	var group sync.WaitGroup
	for i, sandbox := range s.sandboxes {
		group.Go(func() { errs[i] = sandbox.Remove(ctx) })
	}
	group.Wait()
	stuck := errors.Join(errs...) != nil
	for _, at := range []*side{&s.here, &s.there} {
		if !at.acquired {
			continue
		}
		if at.dirty && !at.leased {
			_, _ = s.Gate.Release(ctx, at.cell.ID) // the cell goes away in any case
		}
		errs = append(errs, s.release(ctx, at))
		if stuck || at.dirty {
			s.Cells.Discard(at.cell)
		} else {
			s.Cells.Put(at.cell)
		}
	}
	for _, dir := range s.dirs {
		errs = append(errs, os.RemoveAll(dir))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("take the scene apart: %w", err)
	}
	return nil
}

// nonce marks everything of one check: names, payloads, objects.
func nonce() string {
	b := make([]byte, 6)
	rand.Read(b) // never fails
	return hex.EncodeToString(b)
}
