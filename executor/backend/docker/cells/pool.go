// Package cells makes cells on a Docker engine ahead and lends them: of each an internal
// network on which the host has no address, the gate's address in it, and a keeper that
// owns the network namespace and has sealed it before anybody joins.
package cells

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"sallyport/executor/backend"
	"sallyport/executor/backend/docker/engine"
)

// cellBits is the length of a cell's prefix: the gate, the keeper, and room for
// the addresses that an engine reserves.
const cellBits = 28

// Config is what NewPool needs.
type Config struct {
	// Image holds the keeper, /cell; it is the gate's image. Required.
	Image string
	// Subnets is where cells get their subnets. Required; nothing else on the host
	// should use it.
	Subnets netip.Prefix
	// Ahead is how many cells Run keeps ready beyond those in use.
	Ahead int
}

// A Pool makes cells ahead and lends them, one sandbox after another. NewPool makes
// it; Run refills it.
type Pool struct {
	engine *engine.Engine
	cfg    Config
	wake   chan struct{} // tells Run that there may be something to do

	mu      sync.Mutex       // guards what follows
	ready   []*cell          // made and unused, the longest unused first
	made    map[string]*cell // all that exist, by ID
	trash   []*cell          // to be taken apart
	subnets map[netip.Prefix]bool
	closed  bool
}

var _ backend.Cells = (*Pool)(nil)

// NewPool checks the configuration; no cell is made before Acquire or Run.
func NewPool(engine *engine.Engine, cfg Config) (*Pool, error) {
	switch {
	case cfg.Image == "":
		return nil, errors.New("docker: cells: no image of the keeper")
	case !cfg.Subnets.IsValid() || !cfg.Subnets.Addr().Is4() || cfg.Subnets.Bits() > cellBits:
		return nil, fmt.Errorf("docker: cells: pool %q is not an IPv4 prefix of /%d or shorter", cfg.Subnets, cellBits)
	case cfg.Ahead < 0:
		return nil, fmt.Errorf("docker: cells: %d ahead", cfg.Ahead)
	}
	cfg.Subnets = cfg.Subnets.Masked()
	return &Pool{
		engine: engine, cfg: cfg, wake: make(chan struct{}, 1),
		made: make(map[string]*cell), subnets: make(map[netip.Prefix]bool),
	}, nil
}

// Acquire implements backend.Cells. A cell that was made ahead is looked at before
// it is lent: its keeper must live and the gate must be where it was.
func (p *Pool) Acquire(ctx context.Context) (backend.Cell, error) {
	for {
		next := p.take()
		if next == nil {
			break
		}
		p.poke() // one less is ready
		err := p.intact(ctx, next)
		if err == nil {
			return next.Cell, nil
		}
		if ctx.Err() != nil {
			p.Put(next.Cell)
			return backend.Cell{}, fmt.Errorf("docker: acquire a cell: %w", ctx.Err())
		}
		p.engine.Log.Warn("cell is not as it was made", "cell", next.ID, "error", err)
		p.Discard(next.Cell)
	}
	made, err := p.make(ctx)
	if err != nil {
		return backend.Cell{}, fmt.Errorf("docker: make a cell: %w", err)
	}
	return made.Cell, nil
}

// Put implements backend.Cells. The caller has removed the sandbox and ended the
// lease.
func (p *Pool) Put(lent backend.Cell) {
	p.mu.Lock()
	if known := p.made[lent.ID]; known != nil {
		p.ready = append(p.ready, known)
	}
	p.mu.Unlock()
	p.poke()
}

// Discard implements backend.Cells. Run, or Close, takes the cell apart.
func (p *Pool) Discard(lent backend.Cell) {
	p.mu.Lock()
	if known := p.made[lent.ID]; known != nil {
		delete(p.made, lent.ID)
		p.trash = append(p.trash, known)
	}
	p.mu.Unlock()
	p.poke()
}

// Run keeps cells ready and takes discarded ones apart until ctx ends. What the
// engine refuses is tried again, less and less often.
func (p *Pool) Run(ctx context.Context) error {
	const first, last = time.Second, 30 * time.Second
	delay := first
	for {
		more, err := p.tend(ctx)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil:
			p.engine.Log.Warn("cells", "error", err, "again_in", delay)
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(delay):
			}
			delay = min(2*delay, last)
		case more:
			delay = first
		default:
			delay = first
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-p.wake:
			}
		}
	}
}

// tend does one piece of Run's work and says whether it found any.
func (p *Pool) tend(ctx context.Context) (bool, error) {
	p.mu.Lock()
	var bad *cell
	if len(p.trash) > 0 {
		bad, p.trash = p.trash[0], p.trash[1:]
	}
	short := !p.closed && len(p.ready) < p.cfg.Ahead
	p.mu.Unlock()
	if bad != nil {
		return true, p.unmake(ctx, bad)
	}
	if !short {
		return false, nil
	}
	made, err := p.make(ctx)
	if err != nil {
		return true, err
	}
	p.Put(made.Cell)
	return true, nil
}

// Close takes every cell apart, lent ones too. No cell is made after it; the caller
// has ended Run.
func (p *Pool) Close(ctx context.Context) error {
	p.mu.Lock()
	p.closed = true
	all := p.trash
	for _, known := range p.made {
		all = append(all, known)
	}
	p.made, p.trash, p.ready = make(map[string]*cell), nil, nil
	p.mu.Unlock()
	errs := make([]error, len(all))
	var group errgroup.Group
	group.SetLimit(engine.Removals)
	for i, known := range all {
		group.Go(func() error {
			errs[i] = p.unmake(ctx, known)
			return nil
		})
	}
	group.Wait()
	return errors.Join(errs...)
}

// take takes the cell that has waited longest.
func (p *Pool) take() *cell {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.ready) == 0 {
		return nil
	}
	next := p.ready[0]
	p.ready = p.ready[1:]
	return next
}

// Count returns the cells that wait for a run and those that are lent.
func (p *Pool) Count() (ready, lent int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.ready), max(len(p.made)-len(p.ready), 0)
}

func (p *Pool) poke() {
	select {
	case p.wake <- struct{}{}:
	default: // it has been told already
	}
}

// make makes one cell in the first free subnet.
func (p *Pool) make(ctx context.Context) (*cell, error) {
	gate, err := p.gate(ctx)
	if err != nil {
		return nil, err
	}
	taken, err := p.takenSubnets(ctx)
	if err != nil {
		return nil, err
	}
	for prefix := range subnetsOf(p.cfg.Subnets) {
		if overlaps(prefix, taken) || !p.claim(prefix) {
			continue
		}
		made, err := p.makeCell(ctx, p.cfg.Subnets, prefix, gate, p.cfg.Image)
		if err == nil {
			return made, p.enter(ctx, made)
		}
		p.release(prefix)
		if !errors.Is(err, errSubnetTaken) {
			return nil, err
		}
	}
	return nil, fmt.Errorf("no free /%d is left in the pool %s: enlarge it, or remove what occupies it", cellBits, p.cfg.Subnets)
}

// claim reserves a subnet for this process, so that two cells in the making do not
// ask the engine for the same one.
func (p *Pool) claim(subnet netip.Prefix) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.subnets[subnet] {
		return false
	}
	p.subnets[subnet] = true
	return true
}

func (p *Pool) release(subnet netip.Prefix) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.subnets, subnet)
}

// enter puts a cell into the books, unless they were closed while it was made.
func (p *Pool) enter(ctx context.Context, made *cell) error {
	p.mu.Lock()
	closed := p.closed
	if !closed {
		p.made[made.ID] = made
	}
	p.mu.Unlock()
	if closed {
		return errors.Join(errors.New("the cells are closed"), p.unmake(ctx, made))
	}
	return nil
}

// unmake takes a cell apart. What fails is left for the next try, or for the sweep
// of the next boot.
func (p *Pool) unmake(ctx context.Context, bad *cell) error {
	ctx, cancel := engine.Steady(ctx)
	defer cancel()
	if err := p.removeCell(ctx, bad); err != nil {
		p.mu.Lock()
		p.trash = append(p.trash, bad)
		p.mu.Unlock()
		return fmt.Errorf("take cell %s apart: %w", bad.ID, err)
	}
	p.release(bad.Prefix)
	return nil
}
