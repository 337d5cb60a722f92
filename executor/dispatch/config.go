package dispatch

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"path/filepath"
	"slices"
	"time"

	"sallyport/executor/agent"
	"sallyport/executor/api"
	"sallyport/executor/approval"
	"sallyport/executor/audit"
	"sallyport/executor/backend"
	"sallyport/executor/place"
	"sallyport/executor/plan"
	"sallyport/executor/policy"
	"sallyport/executor/redact"
	"sallyport/executor/secrets"
	"sallyport/executor/statedir"
	"sallyport/executor/task"
	"sallyport/executor/tokens"
	"sallyport/firewall/account"
	"sallyport/gate/control"
)

// GateState is what is asked of the gate beside what tasks ask; *control.Client is one.
type GateState interface {
	Health(ctx context.Context) (control.Health, error)
	Judge(ctx context.Context, q control.Question) (control.Judgement, error)
}

// Config is what a Dispatcher is made of. All fields are required unless they
// say otherwise.
type Config struct {
	// State is the executor's own directory; no other process may use it.
	State string
	// Version is that of the build.
	Version string
	// Secrets are files whose content is no run's business, or by which a run could
	// change what is trusted, by what the operator calls them. None may lie under one of
	// Service.Roots.
	Secrets map[string]string
	// Redact are values that are taken out of all that is kept, by their names, beside
	// the secrets of runs.
	Redact map[string]string
	// SecretSources have the secrets of runs, provider keys among them.
	SecretSources secrets.Sources
	// Service is what requests may ask for. Its Private and Sessions are set by
	// New, from State and Secrets, its Backends from Backends, its Keys and Secrets for
	// each request.
	Service plan.Service

	// Profiles say who may run what; if nil, the default ones.
	Profiles *policy.Live
	// Backends are what isolates, the default first. Their cells are CellCounters, too,
	// where they are to be counted.
	Backends  []backend.Backend
	Gate      task.Gate
	GateState GateState // of the same gate
	// Boot removes what an earlier executor left behind outside the state
	// directory, and returns the final receipts of the runs that were under way, as
	// far as the gate has them. It is called once nobody else can use that directory and
	// before anything is started. If nil, nothing is done.
	Boot func(ctx context.Context) (map[string]account.Receipt, error)
	Log  *slog.Logger

	MaxRuns int // at once
	// Users is how many user ids, from Service.UID on, are for runs that bring no
	// workspace: with MaxRuns each has its own, with one they share it.
	Users int
	Queue int // waiting beside those
	// WorkerRuns is how many runs of one worker there are at once; if 0, as many as of others.
	WorkerRuns int
	// QueueTime is how long a run waits for its place at most; if 0, as long as it takes.
	QueueTime time.Duration
	// DiskFloor is what the file systems of state and workspaces must have left.
	DiskFloor place.Floor
	// AllowSockets lets callers' directories hold sockets and FIFOs; see place.Places.
	AllowSockets bool
	// Announce is told of pending approvals; if nil, nobody is.
	Announce approval.Poster
	// GitHub gives runs access to GitHub. If nil, requests for it are refused.
	GitHub *GitHubAccess
	// Ended is told of each run that has ended, by its audit record and its events. It does
	// not wait for anybody. If nil, nobody is told.
	Ended func(audit.Record, iter.Seq[api.Event])
	// Keep is how many finished executions are kept, KeepFor how long.
	Keep    int
	KeepFor time.Duration

	// Now measures the time between what is asked for at most so often; if nil, time.Now.
	Now func() time.Time
}

// GitHubAccess is an executor's access to GitHub, which Service.GitHub says who may ask for.
type GitHubAccess struct {
	Issuer tokens.Issuer
	// Host is where git finds repositories, such as github.com.
	Host string
	// APIURL is the base of the REST API, such as https://api.github.com/.
	APIURL string
	// Source is what receipts say of the tokens: api.SourceApp or api.SourceStatic.
	Source string
	// Key reads the App's private key; nil unless Service.GitHub allows it to a run.
	Key func() ([]byte, error)
}

func (c *Config) check() error {
	switch s := c.Service; {
	case !filepath.IsAbs(c.State):
		return fmt.Errorf("the state directory %q is not an absolute path", c.State)
	case len(s.Agents) == 0 || len(s.Images) == 0 || len(s.Tiers) == 0:
		return errors.New("agents, images and tiers are required")
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
	case c.GitHub != nil && (c.GitHub.Issuer == nil || c.GitHub.Host == "" || c.GitHub.APIURL == "" || c.GitHub.Source == ""):
		return errors.New("access to GitHub takes an issuer, a host, the API's address and a source")
	case c.GitHub != nil && c.Service.GitHub.AllowKey != (c.GitHub.Key != nil):
		return errors.New("the App's private key must be readable exactly where a run may have it")
	case c.Keep <= 0 || c.KeepFor <= 0:
		return errors.New("how many executions are kept, and how long, is required")
	case c.Gate == nil || c.GateState == nil || c.Log == nil:
		return errors.New("gate and log are required")
	}
	return nil
}

// unbounded reports whether a tier lacks one of the limits that the executor enforces.
func unbounded(t plan.Tier) bool {
	return t.Limits.OutputBytes <= 0 || t.Limits.WorkspaceBytes <= 0 || t.Limits.WorkspaceFiles <= 0
}

func newRunner(cfg Config, backends *backend.Registry, redactor *redact.Redactor) *task.Runner {
	return &task.Runner{
		Places: &place.Places{
			Backends:     backends,
			Workspaces:   statedir.Workspaces(cfg.State),
			Floor:        cfg.DiskFloor,
			AllowSockets: cfg.AllowSockets,
		},
		Gate:     cfg.Gate,
		Redactor: redactor,
		Secrets:  cfg.SecretSources,
		Log:      cfg.Log,
	}
}

// openKeyring knows the operator's provider and search keys.
func (c *Config) openKeyring() (*secrets.Keyring, error) {
	return secrets.OpenKeyring(c.SecretSources, append(agent.ProviderKeys(), agent.SearchKeys()...), c.Redact, c.Log)
}

// service is what requests may ask for, with the keys that there are now.
func (d *Dispatcher) service() plan.Service {
	s := d.cfg.Service
	s.Keys = d.keyring.There()
	return s
}

// redactorOf is the redactor of what is kept of a plan before its run.
func (d *Dispatcher) redactorOf(p *plan.Plan) *redact.Redactor {
	return d.keyring.RedactorFor(p.Effective.Secrets)
}
