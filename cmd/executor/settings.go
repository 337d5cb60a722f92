package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/docker/go-units"

	"sallyport/executor/agent"
	"sallyport/executor/api"
	"sallyport/executor/secrets"
	"sallyport/executor/statedir"
	"sallyport/internal/envvars"
	"sallyport/internal/fileowner"
)

// settings are what an operator may set, by variables of the environment with
// the prefix SALLYPORT_. Sizes are written as 2GiB, durations as 30m.
type settings struct {
	// State is the executor's own directory, an absolute path that is the same for
	// the engine.
	State  string `env:"STATE" envDefault:"/var/lib/sallyport"`
	Listen string `env:"LISTEN" envDefault:"127.0.0.1:7280"`
	// APISocket is where the API is served to users of this machine, beside Listen.
	APISocket string `env:"API_SOCKET"`
	// MetricsListen is where metrics are served; if empty, nowhere.
	MetricsListen string `env:"EXECUTOR_METRICS_LISTEN"`
	// Stack names everything of this installation on the engine.
	Stack      string `env:"STACK" envDefault:"sallyport"`
	GateSocket string `env:"GATE_SOCKET" envDefault:"/run/sallyport/control.sock"`

	AgentImage string `env:"AGENT_IMAGE" envDefault:"sallyport/agent:dev"`
	AgentUID   int    `env:"AGENT_UID" envDefault:"10001"`
	// Model is what a run gets that names none; if empty, such a request is refused.
	Model     string `env:"MODEL"`
	CellImage string `env:"CELL_IMAGE" envDefault:"sallyport/gate:dev"`
	// CellPool is by default a range that neither the engine takes for networks of
	// its own nor anybody has on the internet (RFC 2544).
	CellPool   netip.Prefix `env:"CELL_POOL" envDefault:"198.18.0.0/16"`
	CellsAhead int          `env:"CELLS_AHEAD" envDefault:"2"`

	// Policies are those that requests may name; all if empty.
	Policies []string `env:"POLICIES"`
	// Profiles is the file that says who may run what; if empty, the default holds.
	Profiles string `env:"PROFILES"`

	MaxRuns int `env:"MAX_RUNS" envDefault:"4"`
	Queue   int `env:"QUEUE" envDefault:"64"`
	// WorkerRuns is how many runs of one worker there are at once.
	WorkerRuns int `env:"WORKER_RUNS" envDefault:"0"`
	// QueueTime is how long a run waits at most.
	QueueTime time.Duration `env:"QUEUE_TIME" envDefault:"1h"`
	// Roots are the directories under which requests may name paths.
	Roots []string `env:"ROOTS" envSeparator:":"`
	// AllowSockets lets what callers name hold sockets and FIFOs, by which an agent can
	// reach past the gate.
	AllowSockets bool `env:"ALLOW_SOCKETS" envDefault:"false"`
	// ExtraCA is a file with PEM certificates that sandboxes trust beside their own.
	ExtraCA string `env:"EXTRA_CA"`
	// SecretsDir is a directory with the secrets of runs, one file each.
	SecretsDir string `env:"SECRETS_DIR"`
	// Token is what callers must show; without one, that in TokenFile, which is
	// made if need be.
	Token     string `env:"TOKEN"`
	TokenFile string `env:"TOKEN_FILE"`

	Timeout        time.Duration `env:"TIMEOUT" envDefault:"30m"`
	MaxTimeout     time.Duration `env:"MAX_TIMEOUT" envDefault:"6h"`
	Memory         size          `env:"MEMORY" envDefault:"2GiB"`
	PIDs           int64         `env:"PIDS" envDefault:"512"`
	CPUs           float64       `env:"CPUS" envDefault:"2"`
	OutputBytes    size          `env:"OUTPUT_BYTES" envDefault:"64MiB"`
	WorkspaceBytes size          `env:"WORKSPACE_BYTES" envDefault:"10GiB"`
	// DiskFloor is what the file systems of state and workspaces must have left.
	DiskFloor size `env:"DISK_FLOOR" envDefault:"2GiB"`

	// Keep is how many finished executions are kept, KeepFor how long.
	Keep    int           `env:"KEEP" envDefault:"1000"`
	KeepFor time.Duration `env:"KEEP_FOR" envDefault:"168h"`

	GitHub gitHubSettings
	OTLP   otlpSettings
	// Webhook is told of pending approvals.
	Webhook webhookSettings

	// variables are those of the environment that hold secrets of runs, or may.
	variables map[string]string
}

// parseSettings reads the settings from an environment in the form of os.Environ.
func parseSettings(environ []string) (settings, error) {
	var s settings
	variables, err := envvars.Parse(&s, environ)
	if err != nil {
		return s, fmt.Errorf("settings: %w", err)
	}
	if s.TokenFile == "" {
		s.TokenFile = statedir.TokenFile(s.State)
	}
	if s.SecretsDir == "" {
		s.SecretsDir = statedir.Secrets(s.State)
	}
	if s.APISocket == "" {
		s.APISocket = statedir.SocketFile(s.State)
	}
	for i, name := range s.Policies {
		if s.Policies[i] = strings.TrimSpace(name); s.Policies[i] == "" {
			return s, errors.New("settings: SALLYPORT_POLICIES has an empty name: write policies with commas, such as strict,open")
		}
	}
	s.Roots = slices.DeleteFunc(s.Roots, func(r string) bool { return r == "" })
	s.variables = variables
	return s, nil
}

// checkModel returns an error if the default agent cannot run with the model.
func (s settings) checkModel(ctx context.Context, from secrets.Sources) error {
	if s.Model == "" {
		return nil
	}
	keys := map[string]bool{}
	for _, name := range agent.ProviderKeys() {
		_, keys[name] = from.Have(ctx, name)
	}
	p := agent.All()[0].Check(agent.Input{Prompt: "any", Config: api.Config{Model: s.Model}, Keys: keys})
	if p == nil {
		return nil
	}
	return errors.New("settings: " + strings.Replace(p.Detail, "config.model", "SALLYPORT_MODEL", 1))
}

// secretSources are where the secrets of runs come from: a directory, which is made if
// it is the one in the state directory, and the environment.
func (s settings) secretSources() (secrets.Sources, error) {
	if s.SecretsDir == statedir.Secrets(s.State) {
		if err := os.MkdirAll(s.SecretsDir, 0o700); err != nil {
			return nil, fmt.Errorf("make the directory of secrets: %w", err)
		}
		give := func(uid, gid int) error { return os.Chown(s.SecretsDir, uid, gid) }
		if err := fileowner.GiveLike(s.State, give); err != nil {
			return nil, fmt.Errorf("make the directory of secrets: %w", err)
		}
	}
	fixed := secrets.Environment(s.variables)
	maps.Copy(fixed, pick(s.variables, append(agent.ProviderKeys(), agent.SearchKeys()...)))
	return secrets.Sources{
		{Name: "the directory " + s.SecretsDir, Provider: secrets.Directory(s.SecretsDir)},
		{Name: "the environment", Provider: fixed},
	}, nil
}

// secrets are the files that no run may get at, by the setting that names each.
func (s settings) secrets() map[string]string {
	files := map[string]string{
		"SALLYPORT_API_SOCKET":          s.APISocket,
		"SALLYPORT_EXTRA_CA":            s.ExtraCA,
		"SALLYPORT_GITHUB_APP_KEY_FILE": s.GitHub.AppKeyFile,
		"SALLYPORT_GITHUB_TOKEN_FILE":   s.GitHub.TokenFile,
		"SALLYPORT_GITHUB_PROFILES":     s.GitHub.Profiles,
		"SALLYPORT_PROFILES":            s.Profiles,
		"SALLYPORT_SECRETS_DIR":         s.SecretsDir,
		"SALLYPORT_OTLP_HEADERS_FILE":   s.OTLP.HeadersFile,

		"SALLYPORT_APPROVAL_WEBHOOK_SECRET_FILE": s.Webhook.SecretFile,
	}
	if s.Token == "" {
		files["SALLYPORT_TOKEN_FILE"] = s.TokenFile
	}
	maps.DeleteFunc(files, func(_, path string) bool { return path == "" })
	return files
}

// pick returns the variables of the given names that are set.
func pick(variables map[string]string, names []string) map[string]string {
	found := map[string]string{}
	for _, name := range names {
		if value, ok := variables[name]; ok {
			found[name] = value
		}
	}
	return found
}

// A size is a number of bytes.
type size int64

// UnmarshalText reads a size such as 64MiB.
func (s *size) UnmarshalText(text []byte) error {
	n, err := units.RAMInBytes(string(text))
	if err != nil || n <= 0 {
		return fmt.Errorf("%q is not a size such as 64MiB", text)
	}
	*s = size(n)
	return nil
}
