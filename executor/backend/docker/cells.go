package docker

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"sallyport/executor/backend"
)

// cellBits is the length of a cell's prefix: the gate, the keeper, and room for
// the addresses that an engine reserves.
const cellBits = 28

// CellsConfig is what NewCells needs.
type CellsConfig struct {
	// Image holds the keeper, /cell; it is the gate's image. Required.
	Image string
	// Pool is where cells get their subnets. Required; nothing else on the host
	// should use it.
	Pool netip.Prefix
	// Ahead is how many cells Run keeps ready beyond those in use.
	Ahead int
}

// Cells makes cells ahead and lends them, one run after another. NewCells makes
// it; Run refills it.
type Cells struct {
	engine *Engine
	cfg    CellsConfig
	wake   chan struct{} // tells Run that there may be something to do

	mu      sync.Mutex       // guards what follows
	ready   []*cell          // made and unused, the longest unused first
	made    map[string]*cell // all that exist, by ID
	trash   []*cell          // to be taken apart
	subnets map[netip.Prefix]bool
	closed  bool
}

var _ backend.Cells = (*Cells)(nil)

// NewCells checks the configuration; no cell is made before Acquire or Run.
func NewCells(engine *Engine, cfg CellsConfig) (*Cells, error) {
	switch {
	case cfg.Image == "":
		return nil, errors.New("docker: cells: no image of the keeper")
	case !cfg.Pool.IsValid() || !cfg.Pool.Addr().Is4() || cfg.Pool.Bits() > cellBits:
		return nil, fmt.Errorf("docker: cells: pool %q is not an IPv4 prefix of /%d or shorter", cfg.Pool, cellBits)
	case cfg.Ahead < 0:
		return nil, fmt.Errorf("docker: cells: %d ahead", cfg.Ahead)
	}
	cfg.Pool = cfg.Pool.Masked()
	return &Cells{
		engine: engine, cfg: cfg, wake: make(chan struct{}, 1),
		made: make(map[string]*cell), subnets: make(map[netip.Prefix]bool),
	}, nil
}

// Acquire implements backend.Cells. A cell that was made ahead is looked at before
// it is lent: its keeper must live and the gate must be where it was.
func (c *Cells) Acquire(ctx context.Context) (backend.Cell, error) {
	for {
		next := c.take()
		if next == nil {
			break
		}
		c.poke() // one less is ready
		err := c.engine.intact(ctx, next)
		if err == nil {
			return next.Cell, nil
		}
		if ctx.Err() != nil {
			c.Put(next.Cell)
			return backend.Cell{}, fmt.Errorf("docker: acquire a cell: %w", ctx.Err())
		}
		c.engine.log.Warn("cell is not as it was made", "cell", next.ID, "error", err)
		c.Discard(next.Cell)
	}
	made, err := c.make(ctx)
	if err != nil {
		return backend.Cell{}, fmt.Errorf("docker: make a cell: %w", err)
	}
	return made.Cell, nil
}

// Put implements backend.Cells. The caller has removed the sandbox and ended the
// lease.
func (c *Cells) Put(lent backend.Cell) {
	c.mu.Lock()
	if known := c.made[lent.ID]; known != nil {
		c.ready = append(c.ready, known)
	}
	c.mu.Unlock()
	c.poke()
}

// Discard implements backend.Cells. Run, or Close, takes the cell apart.
func (c *Cells) Discard(lent backend.Cell) {
	c.mu.Lock()
	if known := c.made[lent.ID]; known != nil {
		delete(c.made, lent.ID)
		c.trash = append(c.trash, known)
	}
	c.mu.Unlock()
	c.poke()
}

// Run keeps cells ready and takes discarded ones apart until ctx ends. What the
// engine refuses is tried again, less and less often.
func (c *Cells) Run(ctx context.Context) error {
	const first, last = time.Second, 30 * time.Second
	delay := first
	for {
		more, err := c.tend(ctx)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil:
			c.engine.log.Warn("cells", "error", err, "again_in", delay)
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
			case <-c.wake:
			}
		}
	}
}

// tend does one piece of Run's work and says whether it found any.
func (c *Cells) tend(ctx context.Context) (bool, error) {
	c.mu.Lock()
	var bad *cell
	if len(c.trash) > 0 {
		bad, c.trash = c.trash[0], c.trash[1:]
	}
	short := !c.closed && len(c.ready) < c.cfg.Ahead
	c.mu.Unlock()
	if bad != nil {
		return true, c.unmake(ctx, bad)
	}
	if !short {
		return false, nil
	}
	made, err := c.make(ctx)
	if err != nil {
		return true, err
	}
	c.Put(made.Cell)
	return true, nil
}

// Close takes every cell apart, lent ones too. No cell is made after it; the caller
// has ended Run.
func (c *Cells) Close(ctx context.Context) error {
	c.mu.Lock()
	c.closed = true
	all := c.trash
	for _, known := range c.made {
		all = append(all, known)
	}
	c.made, c.trash, c.ready = make(map[string]*cell), nil, nil
	c.mu.Unlock()
	errs := make([]error, len(all))
	var group errgroup.Group
	group.SetLimit(removals)
	for i, known := range all {
		group.Go(func() error {
			errs[i] = c.unmake(ctx, known)
			return nil
		})
	}
	group.Wait()
	return errors.Join(errs...)
}

// take takes the cell that has waited longest.
func (c *Cells) take() *cell {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.ready) == 0 {
		return nil
	}
	next := c.ready[0]
	c.ready = c.ready[1:]
	return next
}

// Count returns the cells that wait for a run and those that are lent.
func (c *Cells) Count() (ready, lent int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.ready), max(len(c.made)-len(c.ready), 0)
}

func (c *Cells) poke() {
	select {
	case c.wake <- struct{}{}:
	default: // it has been told already
	}
}

// make makes one cell in the first free subnet.
func (c *Cells) make(ctx context.Context) (*cell, error) {
	gate, err := c.engine.gate(ctx)
	if err != nil {
		return nil, err
	}
	taken, err := c.engine.subnets(ctx)
	if err != nil {
		return nil, err
	}
	for prefix := range subnetsOf(c.cfg.Pool) {
		if overlaps(prefix, taken) || !c.claim(prefix) {
			continue
		}
		made, err := c.engine.makeCell(ctx, c.cfg.Pool, prefix, gate, c.cfg.Image)
		if err == nil {
			return made, c.keep(ctx, made)
		}
		c.release(prefix)
		if !errors.Is(err, errSubnetTaken) {
			return nil, err
		}
	}
	return nil, fmt.Errorf("no free /%d is left in the pool %s: enlarge it, or remove what occupies it", cellBits, c.cfg.Pool)
}

// claim reserves a subnet for this process, so that two cells in the making do not
// ask the engine for the same one.
func (c *Cells) claim(p netip.Prefix) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.subnets[p] {
		return false
	}
	c.subnets[p] = true
	return true
}

func (c *Cells) release(p netip.Prefix) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.subnets, p)
}

// keep enters a cell in the books, unless they were closed while it was made.
func (c *Cells) keep(ctx context.Context, made *cell) error {
	c.mu.Lock()
	closed := c.closed
	if !closed {
		c.made[made.ID] = made
	}
	c.mu.Unlock()
	if closed {
		return errors.Join(errors.New("the cells are closed"), c.unmake(ctx, made))
	}
	return nil
}

// unmake takes a cell apart. What fails is left for the next try, or for the sweep
// of the next boot.
func (c *Cells) unmake(ctx context.Context, bad *cell) error {
	ctx, cancel := steady(ctx)
	defer cancel()
	if err := c.engine.removeCell(ctx, bad); err != nil {
		c.mu.Lock()
		c.trash = append(c.trash, bad)
		c.mu.Unlock()
		return fmt.Errorf("take cell %s apart: %w", bad.ID, err)
	}
	c.release(bad.Prefix)
	return nil
}
