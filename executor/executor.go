// Package executor is the server that runs agents: it takes requests over HTTP,
// judges them, runs each in a sandbox of its own behind the gate, and keeps what
// came of it. New makes an Executor, Handler serves its API, Shutdown ends it.
//
// It starts nothing before the gate has confirmed the policy and before the
// boundary has been proven; see package plan for what a request may ask, package
// run for the life of one run and package store for what is kept.
package executor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"sallyport/executor/api"
	"sallyport/executor/backend"
	"sallyport/executor/plan"
	"sallyport/executor/redact"
	"sallyport/executor/run"
	"sallyport/executor/store"
	"sallyport/executor/tokens"
	"sallyport/firewall"
	"sallyport/gate/control"
)

// A Gate is what the executor needs of the gate; *control.Client is one.
type Gate interface {
	run.Gate
	Health(ctx context.Context) (control.Health, error)
}

// A Boundary proves that nothing gets out of a cell but through the gate.
type Boundary interface {
	// Check makes the attempts. An error means that they could not be made.
	Check(ctx context.Context) (api.BoundaryReport, error)
}

// Config is what an Executor is made of. All fields are required unless they
// say otherwise.
type Config struct {
	// State is the executor's own directory; no other process may use it.
	State string
	// Token is what callers must show; see LoadToken.
	Token string
	// Version is that of the build.
	Version string
	// Secrets are files whose content is no run's business, or by which a run could
	// change what is trusted, by what the operator calls them. None may lie under one of
	// Service.Roots.
	Secrets map[string]string
	// Service is what requests may ask for. Its Private and Sessions are set by
	// New, from State and Secrets.
	Service   plan.Service
	Isolation api.Isolation

	Backend  backend.Backend
	Cells    backend.Cells // a CellCounter, too, where its cells are to be counted
	Gate     Gate
	Boundary Boundary
	// Engine says why what isolates cannot be used now, or nil.
	Engine func(ctx context.Context) error
	// Boot removes what an earlier executor left behind outside the state
	// directory, and returns the final receipts of the runs that were under way, as
	// far as the gate has them. It is called once nobody else can use that directory and
	// before anything is started. If nil, nothing is done.
	Boot func(ctx context.Context) (map[string]firewall.Receipt, error)
	Log  *slog.Logger

	MaxRuns int // at once
	// Users is how many user ids, from Service.UID on, are for runs that bring no
	// workspace: with MaxRuns each has its own, with one they share it.
	Users int
	Queue int // waiting beside those
	// DiskFloor is what the file systems of state and workspaces must have left.
	DiskFloor run.Floor
	// AllowSockets lets callers' directories hold sockets and FIFOs; see run.Runner.
	AllowSockets bool
	// GitHub gives runs access to GitHub. If nil, requests for it are refused.
	GitHub *GitHub
	// Keep is how many finished executions are kept, KeepFor how long.
	Keep    int
	KeepFor time.Duration
}

// GitHub is an executor's access to GitHub, which Service.GitHub says who may ask for.
type GitHub struct {
	Issuer tokens.Issuer
	// APIURL is the base of the REST API, such as https://api.github.com/.
	APIURL string
	// Source is what receipts say of the tokens: api.SourceApp or api.SourceStatic.
	Source string
	// Key reads the App's private key; nil unless Service.GitHub allows it to a run.
	Key func() ([]byte, error)
}

// An Executor runs agents. It is safe for concurrent use.
type Executor struct {
	cfg     Config
	lock    *os.File
	store   *store.Store
	tokens  *tokens.Keeper // nil without access to GitHub
	runner  *run.Runner
	proof   *proof
	metrics *metrics
	health  *fresh[control.Health] // of the gate
	engine  *recent                // whether it can be used
	state   *recent                // whether it can be written to
	slots   chan struct{}          // holds one value for each run that is not in the queue
	users   *users

	// background is ended by Shutdown.
	background context.Context
	stop       context.CancelFunc
	tasks      sync.WaitGroup

	mu       sync.Mutex // guards what follows
	active   map[string]*activeRun
	keys     map[string]store.Meta // by Idempotency-Key
	draining bool
}

// An activeRun is an execution that has no result yet.
type activeRun struct {
	dir      string // the caller's workspace, or empty
	sessions string // where the session log goes
	cancel   context.CancelCauseFunc
}

// New makes an executor on its state directory: runs that an earlier one left
// behind are given their end, and the proof of the boundary begins. Shutdown
// must follow.
func New(cfg Config) (*Executor, error) {
	if err := cfg.check(); err != nil {
		return nil, fmt.Errorf("configure the executor: %w", err)
	}
	lock, err := lockState(cfg.State)
	if err != nil {
		return nil, fmt.Errorf("open the state directory: %w", err)
	}
	// First of all, for this takes nothing but GitHub.
	keeper, ended, err := openTokens(cfg.State, cfg.GitHub, cfg.Log)
	if err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	runner := newRunner(cfg)
	st, err := cfg.openStore(aftermath{isolation: cfg.Isolation, redactor: runner.Redactor, tokens: ended, log: cfg.Log})
	if err != nil {
		return nil, errors.Join(err, closeTokens(keeper), lock.Close())
	}
	cleaner := newCleaner(runner.Workspaces, cfg.Log)
	cleaner.first()
	runner.Leftover = cleaner.add
	runner.GitHub = cfg.gitHub(keeper)
	e := &Executor{
		cfg:    cfg,
		lock:   lock,
		store:  st,
		tokens: keeper,
		runner: runner,
		slots:  make(chan struct{}, cfg.MaxRuns),
		users:  newUsers(cfg.Service.UID, cfg.Users),
		active: map[string]*activeRun{},
		keys:   map[string]store.Meta{},
	}
	for _, entry := range st.All() {
		e.remember(entry.Meta)
	}
	e.background, e.stop = context.WithCancel(context.Background())
	e.health = newFresh(e.cfg.askHealth)
	e.engine, e.state = &recent{ask: e.cfg.askEngine}, &recent{ask: e.tryState}
	e.metrics = newMetrics(e)
	e.proof = &proof{
		boundary: cfg.Boundary, ctx: e.background, log: cfg.Log, changed: make(chan struct{}),
		count: func(outcome string) { e.metrics.checks.WithLabelValues(outcome).Inc() },
	}
	e.tasks.Go(e.proof.first)
	e.tasks.Go(e.sweepNowAndThen)
	e.tasks.Go(func() { cleaner.run(e.background) })
	if keeper != nil {
		e.tasks.Go(func() { keeper.Run(e.background) })
	}
	return e, nil
}

// openStore opens the record of executions once the state directory is ready.
func (c *Config) openStore(a aftermath) (*store.Store, error) {
	var err error
	if a.receipts, err = c.prepare(); err != nil {
		return nil, fmt.Errorf("prepare the state directory: %w", err)
	}
	return store.Open(filepath.Join(c.State, executionsDir), c.Log, a.lost)
}

func (c *Config) check() error {
	switch s := c.Service; {
	case !filepath.IsAbs(c.State):
		return fmt.Errorf("the state directory %q is not an absolute path", c.State)
	case len(c.Token) < minToken:
		return fmt.Errorf("the token has fewer than %d characters", minToken)
	case len(s.Agents) == 0 || len(s.Images) == 0 || len(s.Tiers) == 0 || s.Backend == "":
		return errors.New("agents, images, tiers and the backend's name are required")
	case s.UID <= 0:
		return fmt.Errorf("the agent's user is %d; it must not be root", s.UID)
	case s.DefaultTimeout <= 0 || s.MaxTimeout < s.DefaultTimeout:
		return fmt.Errorf("the default timeout %v is not between 0 and the longest, %v", s.DefaultTimeout, s.MaxTimeout)
	case c.Users <= 0:
		return errors.New("runs need a user id")
	case c.MaxRuns <= 0 || c.Queue < 0:
		return fmt.Errorf("%d runs at once and %d waiting make no sense", c.MaxRuns, c.Queue)
	case c.DiskFloor <= 0 || slices.ContainsFunc(s.Tiers, unbounded):
		return errors.New("limits of output, workspace and disk are required")
	case (c.GitHub == nil) != (c.Service.GitHub == nil):
		return errors.New("access to GitHub takes both GitHub and Service.GitHub")
	case c.GitHub != nil && (c.GitHub.Issuer == nil || c.GitHub.APIURL == "" || c.GitHub.Source == ""):
		return errors.New("access to GitHub takes an issuer, the API's address and a source")
	case c.GitHub != nil && c.Service.GitHub.AllowKey != (c.GitHub.Key != nil):
		return errors.New("the App's private key must be readable exactly where a run may have it")
	case c.Keep <= 0 || c.KeepFor <= 0:
		return errors.New("how many executions are kept, and how long, is required")
	case c.Backend == nil || c.Cells == nil || c.Gate == nil || c.Boundary == nil || c.Engine == nil || c.Log == nil:
		return errors.New("backend, cells, gate, boundary, engine and log are required")
	}
	return nil
}

// unbounded reports whether a tier lacks one of the limits that the executor enforces.
func unbounded(t plan.Tier) bool {
	return t.Limits.OutputBytes <= 0 || t.Limits.WorkspaceBytes <= 0 || t.Limits.WorkspaceFiles <= 0
}

func newRunner(cfg Config) *run.Runner {
	secrets := map[string]string{"SALLYPORT_TOKEN": cfg.Token}
	for _, keys := range []map[string]string{cfg.Service.Keys, cfg.Service.SearchKeys} {
		for name, value := range keys {
			secrets[name] = value
		}
	}
	return &run.Runner{
		Backend:    cfg.Backend,
		Cells:      cfg.Cells,
		Gate:       cfg.Gate,
		Isolation:  cfg.Isolation,
		Redactor:   redact.New(secrets),
		Log:        cfg.Log,
		Workspaces: filepath.Join(cfg.State, workspacesDir),
		Floor:      cfg.DiskFloor,

		AllowSockets: cfg.AllowSockets,
	}
}

// Shutdown refuses new runs, cancels those under way and waits for them to be
// taken down, at most until ctx ends. Then nothing answers requests any more.
func (e *Executor) Shutdown(ctx context.Context) error {
	if err := e.drain(ctx); err != nil {
		return err
	}
	return e.close()
}

// drain ends the runs; what came of them can still be asked for.
func (e *Executor) drain(ctx context.Context) error {
	e.mu.Lock()
	e.draining = true
	for _, a := range e.active {
		a.cancel(&api.Error{Code: api.CodeCancelled, Message: "the executor was shut down", Retryable: true})
	}
	e.mu.Unlock()
	e.stop()
	done := make(chan struct{})
	go func() {
		defer close(done)
		e.tasks.Wait()
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("runs were still under way: %w", context.Cause(ctx))
	}
}

// close gives the state directory back, once nothing runs and nobody asks.
func (e *Executor) close() error {
	return errors.Join(closeTokens(e.tokens), e.store.Close(), e.lock.Close())
}
