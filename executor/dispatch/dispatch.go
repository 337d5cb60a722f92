// Package dispatch takes the requests of callers and sees each one to its end: it judges
// the request, lets it wait for a place and for the proof of the boundary, has it run
// and keeps what came of it. It knows nothing of HTTP. New makes a Dispatcher, Shutdown
// ends it.
//
// It starts nothing before the gate has confirmed the policy and before the
// boundary has been proven; see package plan for what a request may ask, packages
// place and task for the life of one run and package store for what is kept.
package dispatch

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"sallyport/executor/api"
	"sallyport/executor/approval"
	"sallyport/executor/audit"
	"sallyport/executor/backend"
	"sallyport/executor/policy"
	"sallyport/executor/proof"
	"sallyport/executor/question"
	"sallyport/executor/queue"
	"sallyport/executor/secrets"
	"sallyport/executor/state"
	"sallyport/executor/statedir"
	"sallyport/executor/store"
	"sallyport/executor/task"
	"sallyport/executor/tokens"
	"sallyport/firewall/account"
	"sallyport/gate/control"
)

// A Dispatcher runs agents. It is safe for concurrent use.
type Dispatcher struct {
	cfg       Config
	backends  *backend.Registry
	proofs    map[string]*proof.Proof // of the boundary, by backend
	lock      *os.File
	db        *sql.DB // of what is looked up
	store     *store.Store
	tokens    *tokens.Keeper // nil without access to GitHub
	audit     *auditor
	approvals *approval.Keeper
	runner    *task.Runner
	keyring   *secrets.Keyring
	metrics   *metrics
	health    *question.Shared[control.Health] // of the gate
	engine    *question.Throttled              // whether it can be used
	state     *question.Throttled              // whether it can be written to
	queue     *queue.Queue
	spending  spending

	// background is ended by Shutdown.
	background context.Context
	stop       context.CancelFunc
	tasks      sync.WaitGroup

	admission sync.Mutex // held by the one who looks whether a request can be admitted, until it is

	mu      sync.Mutex                         // guards what follows
	active  map[string]context.CancelCauseFunc // of the executions that have no result yet
	relying map[string][]api.ApprovalRef       // of those
}

// New makes a dispatcher on its state directory: runs that an earlier one left
// behind are given their end, and the proof of the boundary begins. Shutdown
// must follow.
func New(cfg Config) (*Dispatcher, error) {
	if err := cfg.check(); err != nil {
		return nil, fmt.Errorf("configure the executor: %w", err)
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Profiles == nil {
		var err error
		if cfg.Profiles, err = policy.Open("", cfg.Log); err != nil {
			return nil, fmt.Errorf("configure the executor: %w", err)
		}
	}
	backends, err := backend.NewRegistry(cfg.Backends...)
	if err != nil {
		return nil, fmt.Errorf("configure the executor: %w", err)
	}
	cfg.Service.Backends = backends.Names()
	lock, err := statedir.Lock(cfg.State)
	if err != nil {
		return nil, fmt.Errorf("open the state directory: %w", err)
	}
	// First of all, for this takes nothing but GitHub.
	keeper, ended, err := openTokens(cfg.State, cfg.GitHub, cfg.Log)
	if err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	keyring, err := cfg.openKeyring()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("look at the secrets: %w", err), closeTokens(keeper), lock.Close())
	}
	db, err := state.Open(context.Background(), statedir.Database(cfg.State))
	if err != nil {
		return nil, errors.Join(err, closeTokens(keeper), lock.Close())
	}
	records, err := audit.Open(statedir.Audit(cfg.State))
	if err != nil {
		return nil, errors.Join(err, db.Close(), closeTokens(keeper), lock.Close())
	}
	auditor := &auditor{log: records, errors: cfg.Log, ended: cfg.Ended}
	runner := newRunner(cfg, backends, keyring.Redactor)
	st, err := cfg.openStore(db, aftermath{backends: backends, redactorFor: keyring.RedactorFor, tokens: ended, audit: auditor, log: cfg.Log})
	if err != nil {
		return nil, errors.Join(err, records.Close(), db.Close(), closeTokens(keeper), lock.Close())
	}
	cleaner := statedir.NewCleaner(runner.Places.Workspaces, cfg.Log)
	cleaner.First()
	runner.Places.Leftover = cleaner.Add
	runner.GitHub = cfg.gitHub(keeper)
	d := &Dispatcher{
		cfg:       cfg,
		lock:      lock,
		db:        db,
		store:     st,
		tokens:    keeper,
		audit:     auditor,
		runner:    runner,
		keyring:   keyring,
		backends:  backends,
		proofs:    map[string]*proof.Proof{},
		queue:     queue.New(queue.Limits{Running: cfg.MaxRuns, Module: cfg.WorkerRuns, Waiting: cfg.Queue}, cfg.Service.UID, cfg.Users),
		active:    map[string]context.CancelCauseFunc{},
		relying:   map[string][]api.ApprovalRef{},
		approvals: &approval.Keeper{DB: db, Sign: auditor.signDecision, Now: cfg.Now},
	}
	d.background, d.stop = context.WithCancel(context.Background())
	d.health = question.NewShared(d.cfg.askHealth)
	d.engine, d.state = question.NewThrottled(d.askBackends, cfg.Now), question.NewThrottled(d.tryState, cfg.Now)
	d.metrics = newMetrics(d)
	for _, b := range backends.All() {
		p := &proof.Proof{
			Boundary: b.Boundary, Context: d.background, Log: cfg.Log, Now: cfg.Now,
			Count: func(outcome string) { d.metrics.checks.WithLabelValues(outcome).Inc() },
		}
		d.proofs[b.Name] = p
		d.tasks.Go(p.First)
	}
	d.tasks.Go(d.sweepNowAndThen)
	d.tasks.Go(func() { cleaner.Run(d.background) })
	if cfg.Announce != nil {
		d.tasks.Go(func() { d.approvals.Announce(d.background, cfg.Announce, cfg.Log) })
	}
	if keeper != nil {
		d.tasks.Go(func() { keeper.Run(d.background) })
	}
	return d, nil
}

// openStore opens the record of executions once the state directory is ready.
func (c *Config) openStore(db *sql.DB, a aftermath) (*store.Store, error) {
	var err error
	if a.receipts, err = c.prepare(); err != nil {
		return nil, fmt.Errorf("prepare the state directory: %w", err)
	}
	return store.Open(db, statedir.Executions(c.State), c.Log, a.lost)
}

// prepare makes the state directory ready: whatever was started by an earlier
// executor is ended first, so that nobody uses its workspaces any more.
//
// It returns the final receipts of Boot.
func (c *Config) prepare() (map[string]account.Receipt, error) {
	private, err := statedir.FindPrivate(c.State, c.Secrets, c.Service.RootOf)
	if err != nil {
		return nil, err
	}
	c.Service.Sessions, c.Service.Private = private.Sessions, private.Paths
	receipts, err := c.boot()
	if err != nil {
		return nil, err
	}
	return receipts, statedir.Make(c.State)
}

// bootTimeout bounds Config.Boot.
const bootTimeout = 5 * time.Minute

func (c *Config) boot() (map[string]account.Receipt, error) {
	if c.Boot == nil {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), bootTimeout)
	defer cancel()
	receipts, err := c.Boot(ctx)
	if err != nil {
		return nil, fmt.Errorf("remove what an earlier executor left: %w", err)
	}
	return receipts, nil
}

// Shutdown refuses new runs, cancels those under way and waits for them to be
// taken down, at most until ctx ends. Then nothing answers requests any more.
func (d *Dispatcher) Shutdown(ctx context.Context) error {
	if err := d.Drain(ctx); err != nil {
		return err
	}
	return d.Close()
}

// Drain ends the runs; what came of them can still be asked for.
func (d *Dispatcher) Drain(ctx context.Context) error {
	d.admission.Lock() // whoever is being admitted is active afterwards, and cancelled
	d.queue.Close()
	d.admission.Unlock()
	d.mu.Lock()
	for _, cancel := range d.active {
		cancel(&api.Error{Code: api.CodeCancelled, Message: "the executor was shut down", Retryable: true})
	}
	d.mu.Unlock()
	d.stop()
	done := make(chan struct{})
	go func() {
		defer close(done)
		d.tasks.Wait()
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("runs were still under way: %w", context.Cause(ctx))
	}
}

// Database is the dispatcher's, for those whose tables are in it, until Close.
func (d *Dispatcher) Database() *sql.DB { return d.db }

// Close gives the state directory back, once nothing runs and nobody asks.
func (d *Dispatcher) Close() error {
	return errors.Join(closeTokens(d.tokens), d.store.Close(), d.audit.log.Close(), d.db.Close(), d.lock.Close())
}

// sweepPause is the time between two searches for executions that are too old.
const sweepPause = time.Hour

func (d *Dispatcher) sweepNowAndThen() {
	for {
		d.sweep()
		select {
		case <-d.background.Done():
			return
		case <-time.After(sweepPause):
		}
	}
}

// sweep forgets executions that are kept no longer.
func (d *Dispatcher) sweep() {
	if _, err := d.store.Sweep(d.cfg.Keep, time.Now().Add(-d.cfg.KeepFor)); err != nil {
		d.cfg.Log.Error("old executions could not be removed", "error", err)
	}
}
