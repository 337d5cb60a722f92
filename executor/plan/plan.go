// Package plan turns a request into a Plan: what one run will be, with every
// name looked up, every path resolved and every bound set. A request that cannot
// be met is refused here with an api.Problem, before anything has been started.
package plan

import (
	"time"

	"sallyport/executor/agent"
	"sallyport/executor/api"
	"sallyport/executor/backend"
	"sallyport/executor/caller"
	"sallyport/executor/store"
)

// A Plan is a request that has been judged. It is not changed afterwards.
type Plan struct {
	// Caller is who asked for the run.
	Caller  caller.Caller
	Request api.Request
	Adapter agent.Adapter
	Input   agent.Input
	// Policy is the name of the gate's policy for the run.
	Policy string
	// Backend is the name of what isolates the sandbox.
	Backend string
	Image   string
	Tier    api.Tier
	Limits  Limits
	// Dir is the host's directory that the caller named as the workspace, without
	// symbolic links; empty means an empty workspace of the run's own.
	Dir string
	// ContextDir is the host's directory that the caller named for the agent's context,
	// without symbolic links; Input has what was read there.
	ContextDir string
	// SkillDirs are those of the host that the caller named for the agent's skills, likewise.
	SkillDirs []string
	// UID and GID are those of the sandbox; never 0.
	UID, GID int
	// SessionsDir is where the session log goes.
	SessionsDir string
	Artifacts   []string
	// GitHub is what the run may do on GitHub, nil for nothing.
	GitHub *GitHub
	// Charge notes what the run's models cost, in US dollars as the agent reports it, and
	// says that its tenant may spend no more; nil where nobody counts.
	Charge func(usd float64) *api.Error
	// Effective is what the run may do at most; nil only where nobody computed it.
	Effective *api.EffectivePolicy
	// Worker is the code that the run brings along, nil for none.
	Worker *Worker
}

// A Service is what the executor offers. All fields are required unless they say
// otherwise. It is not changed while it is in use.
type Service struct {
	// Roots are the directories under which a request's paths may lie; with none
	// a request cannot name any path. See ResolveRoots.
	Roots []string
	// Private are directories and files of the executor's own that no path of a request
	// may touch, without symbolic links.
	Private []string
	// Sessions is the default of sessionsDir.
	Sessions string

	Agents   []agent.Adapter // the first is the default
	Model    string          // of an agent that reasons, where a request names none; may be empty
	Backends []string        // the first is the default
	Images   []string        // the first is the default
	Tiers    []Tier          // the first is the default
	UID      int             // of the agent where nothing else is wanted; never 0
	// Policies are those of the gate that a request may name; if empty, all.
	Policies []string

	DefaultTimeout, MaxTimeout time.Duration

	// Keys are the provider and search keys that there are, by their variable.
	Keys map[string]bool
	// Secrets are those beside the keys that a run is given.
	Secrets []agent.Secret
	// ExtraCA is the path of a PEM file with the operator's extra certificates,
	// read anew for each run; empty for none.
	ExtraCA string

	// GitHub is what requests may ask of GitHub; nil refuses them.
	GitHub *GitHubService
}

// A Tier is an api.Tier with all limits. Its WallClock is of no effect: that of a run is
// between DefaultTimeout and MaxTimeout.
type Tier struct {
	Name   string
	Limits Limits
}

// Limits are all that bounds a run, but for the space that the host itself keeps. All
// are required.
type Limits struct {
	backend.Limits               // of the sandbox
	WallClock      time.Duration // from the start of the run, without the queue
	// OutputBytes is the most that the run's event log may grow to. What an agent's
	// adapter drops unread does not count, up to 64 times this.
	OutputBytes int64
	// WorkspaceBytes and WorkspaceFiles are the most that the run may add to its
	// workspace.
	WorkspaceBytes, WorkspaceFiles int64
	Artifacts                      store.ArtifactLimits
	// CostUSD and Tokens are the most that the agent's models may take, as the agent
	// reports it; 0 for no bound.
	CostUSD float64
	Tokens  int64
}

// Within reports whether none of the limits of a sandbox and of what it may write is wider
// than m's.
func (l Limits) Within(m Limits) bool {
	return l.MemoryBytes <= m.MemoryBytes && l.PIDs <= m.PIDs && l.CPUs <= m.CPUs && l.NoFile <= m.NoFile &&
		l.TmpBytes <= m.TmpBytes && l.ShmSizeBytes <= m.ShmSizeBytes &&
		l.OutputBytes <= m.OutputBytes && l.WorkspaceBytes <= m.WorkspaceBytes && l.WorkspaceFiles <= m.WorkspaceFiles &&
		l.Artifacts.Bytes <= m.Artifacts.Bytes && l.Artifacts.Files <= m.Artifacts.Files
}

// API is the tier as a caller sees it.
func (t Tier) API() api.Tier {
	return api.Tier{Name: t.Name, MemoryBytes: t.Limits.MemoryBytes, PIDs: t.Limits.PIDs, CPUs: t.Limits.CPUs}
}

// Judge makes the plan of a caller's request. policies are the names that the gate knows.
func (s *Service) Judge(by caller.Caller, req api.Request, policies []string) (*Plan, *api.Problem) {
	return judge(&Plan{Caller: by, Request: req},
		s.judgePrompt,
		s.judgeCapabilities,
		judgePhase,
		s.judgeIsolation,
		func(p *Plan) *api.Problem { return s.judgePolicy(p, policies) },
		s.judgeTimeout,
		judgeArtifacts,
		s.judgeWorkspace,
		s.judgeSessions,
		s.judgeInput,
		s.judgeGitHub,
		s.judgeAgent,
		s.judgeSecrets,
		judgeWorker,
	)
}

// Preview judges, as Judge does, what of a request depends neither on the machine
// that is to run it nor on other settings than those given: what it asks for at all,
// its policy, its artifacts and its access to GitHub. The plan has no more than that.
func Preview(req api.Request, policies []string, github *GitHubService) (*Plan, *api.Problem) {
	s := &Service{GitHub: github}
	return judge(&Plan{Request: req},
		s.judgePrompt,
		s.judgeCapabilities,
		judgePhase,
		func(p *Plan) *api.Problem { return s.judgePolicy(p, policies) },
		judgeArtifacts,
		s.judgeGitHub,
	)
}

func judge(p *Plan, steps ...func(*Plan) *api.Problem) (*Plan, *api.Problem) {
	for _, step := range steps {
		if problem := step(p); problem != nil {
			return nil, problem
		}
	}
	return p, nil
}
