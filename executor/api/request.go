// Package api is the executor's HTTP API as its callers see it: the request, the
// events, the result and the failure codes, each with the JSON names of the wire.
package api

import "encoding/json"

// Request is the body of POST /v1/executions. Unknown fields are refused.
type Request struct {
	Prompt string  `json:"prompt"`
	Config Config  `json:"config"`
	Opts   Options `json:"opts"`
}

// Config is the original contract's ExecutorConfig and, below the comment, ours.
type Config struct {
	// CWD is a directory of the executor's host under a configured root; without
	// it the run gets an empty workspace of its own.
	CWD   string `json:"cwd,omitempty"`
	Model string `json:"model,omitempty"` // provider/model
	// Variant is the reasoning effort: off, minimal, low, medium, high or xhigh.
	Variant string `json:"variant,omitempty"`
	// Models and Variants have a value for each phase that Telemetry may name, and
	// "default", which is the same as Model and Variant.
	Models             map[string]string `json:"models,omitempty"`
	Variants           map[string]string `json:"variants,omitempty"`
	Sandbox            string            `json:"sandbox,omitempty"` // the original's name for Backend
	SandboxImage       string            `json:"sandboxImage,omitempty"`
	SessionsDir        string            `json:"sessionsDir,omitempty"`
	UnrestrictedEgress bool              `json:"unrestrictedEgress,omitempty"`
	WebSearch          bool              `json:"webSearch,omitempty"`
	WebSearchProvider  string            `json:"webSearchProvider,omitempty"` // tavily, brave or exa
	AgentContextDir    string            `json:"agentContextDir,omitempty"`
	AgentContext       string            `json:"agentContext,omitempty"`

	// SkillPaths are directories of the executor's host under a configured root, each a
	// skill, or with skills in it.
	SkillPaths []string   `json:"skillPaths,omitempty"`
	Telemetry  *Telemetry `json:"telemetry,omitempty"`

	// Known to the original, not offered here: refused with sandbox_capability_denied
	// unless absent.
	Services json.RawMessage `json:"services,omitempty"`

	// Ours.
	Agent     string   `json:"agent,omitempty"`     // pi (default), agentic-pi or command
	Argv      []string `json:"argv,omitempty"`      // for the agent "command"
	Egress    string   `json:"egress,omitempty"`    // name of a policy; default strict
	Backend   string   `json:"backend,omitempty"`   // docker
	Tier      string   `json:"tier,omitempty"`      // standard
	TimeoutMS int64    `json:"timeoutMs,omitempty"` // wall clock, in ms; default 30 minutes
	Artifacts []string `json:"artifacts,omitempty"` // globs relative to the workspace
}

// Telemetry says how a run is named to the operator's collector. Whether there is one is
// the operator's business: it adds no host to what a sandbox may reach.
type Telemetry struct {
	WorkflowName string `json:"workflowName,omitempty"`
	PhaseName    string `json:"phaseName,omitempty"`
}

// Options are the original's third argument.
type Options struct {
	TaskID       string        `json:"taskId,omitempty"`
	GithubAccess *GithubAccess `json:"githubAccess,omitempty"`
	Workflow     *Workflow     `json:"workflow,omitempty"`
	Worker       *Worker       `json:"worker,omitempty"`
	// Security is what a workflow's task asks for beside all this: the security object of
	// docs/profiles.md. Metadata is the task's own, whose lightWorkflow.security is the
	// same in another spelling, and Document that of the task's workflow.
	Security json.RawMessage `json:"security,omitempty"`
	Metadata json.RawMessage `json:"metadata,omitempty"`
	Document json.RawMessage `json:"document,omitempty"`
}

// Workflow says which task of which workflow a run is. Within a tenant, Definition and
// Instance name the instance, whose runs share one ceiling; see docs/profiles.md.
type Workflow struct {
	Definition string `json:"definition"`
	Version    string `json:"version,omitempty"` // of the definition
	Instance   string `json:"instance"`
	Task       string `json:"task,omitempty"` // its name in the definition
}
