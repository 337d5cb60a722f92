package api

import (
	"encoding/json"
	"time"
)

// PolicyRequest is the body of POST /v1/policy/resolve: what of a workflow and of one
// of its tasks says what is asked for. Members of document and task other than metadata
// and security are not looked at.
type PolicyRequest struct {
	// Tenant is whose policy is computed; empty for the caller's own.
	Tenant string `json:"tenant,omitempty"`
	// Document is the object of that name in a workflow's definition; its
	// metadata.lightWorkflow.security counts, and so does Security, which is the first-class
	// spelling of the same.
	Document json.RawMessage `json:"document,omitempty"`
	Security json.RawMessage `json:"security,omitempty"`
	// Task is one task's definition, with metadata or security of its own.
	Task json.RawMessage `json:"task,omitempty"`
	// TaskType is such as run.shell or call.http; empty where none is asked about.
	TaskType string `json:"taskType,omitempty"`
}

// RouteRequest is the body of POST /v1/policy/route.
type RouteRequest struct {
	PolicyRequest
	// Destination is where a call.http, call.jsonrpc or call.mcp goes: HOST[:PORT] or a
	// URL. Addresses are those that its name led to and that will be dialled; a call goes
	// on the host only for addresses that were judged.
	Destination string   `json:"destination,omitempty"`
	Addresses   []string `json:"addresses,omitempty"`
	// Tools says that a call.agent may use tools or execute code.
	Tools bool `json:"tools,omitempty"`
	// Isolated asks for a sandbox where the host would do.
	Isolated bool `json:"isolated,omitempty"`
}

// EffectivePolicy is what a run may do at most: the answer to POST /v1/policy/resolve.
// Lists of what may be had are ["all"] where nothing narrows them.
type EffectivePolicy struct {
	RequestedProfile  string   `json:"requestedProfile"` // empty where none was
	EffectiveProfile  string   `json:"effectiveProfile"`
	SandboxMode       string   `json:"sandboxMode"` // none, effectful-tasks, workflow-session or per-task
	Provider          string   `json:"provider"`
	Template          string   `json:"template"`      // empty for none
	NetworkPolicy     string   `json:"networkPolicy"` // of the gate's allowlist
	SecretPolicy      string   `json:"secretPolicy"`  // none or task-scoped
	ApprovedTaskTypes []string `json:"approvedTaskTypes"`
	PolicyVersion     int64    `json:"policyVersion"` // the operator's number of profiles.yaml

	Tenant    string `json:"tenant"`    // empty for the operator's own
	Backend   string `json:"backend"`   // what isolates
	Isolation string `json:"isolation"` // machine, user-kernel, container or process
	Image     string `json:"image"`
	Agent     string `json:"agent"`
	Tier      string `json:"tier"`
	// NetworkPolicyDigest is that of the policy in the allowlist that the gate has in
	// force; empty where it is not known.
	NetworkPolicyDigest string `json:"networkPolicyDigest"`
	// Github is the ceiling for what the run may ask of GitHub.
	Github GithubCeiling `json:"github"`
	// ProviderKeys are the variables whose keys an agent is given.
	ProviderKeys []string `json:"providerKeys"`
	// Secrets are the logical names of those that this task is given.
	Secrets []string `json:"secrets"`
	// Gateways are the hosts of MCP servers that the host itself may call.
	Gateways []string `json:"gateways"`
	// TTLMS and IdleTimeoutMS bound the sandbox, in ms; CostUSD and Tokens what its
	// models take. 0 is no bound.
	TTLMS         int64   `json:"ttlMs,omitempty"`
	IdleTimeoutMS int64   `json:"idleTimeoutMs,omitempty"`
	CostUSD       float64 `json:"costUsd,omitempty"`
	Tokens        int64   `json:"tokens,omitempty"`
	Approval      string  `json:"approval"` // per-task, required or none

	// ProfilesDigest identifies what profiles.yaml said, Digest all of the above.
	ProfilesDigest string `json:"profilesDigest"`
	Digest         string `json:"digest"`
	// Narrowings say what of document, task and profile was cut back, and by what.
	Narrowings []Narrowing `json:"narrowings,omitempty"`
	// Approvals are those that a run relies on; nobody else has any.
	Approvals []ApprovalRef `json:"approvals,omitempty"`
}

// GithubCeiling is the most that a run may ask of GitHub.
type GithubCeiling struct {
	Profiles     []string `json:"profiles"`
	Repositories []string `json:"repositories"` // owner/name or owner/*
}

// A Narrowing is one thing that came out narrower than it was asked for, or than the
// profile has it.
type Narrowing struct {
	Field string `json:"field"` // what of: mode, time, egress, ...
	Of    string `json:"of"`    // who said more: document, task or profile
	From  string `json:"from"`
	To    string `json:"to"`
	By    string `json:"by"` // who narrowed it: document, task, tenant, service, profile, instance or installation
	// Rule is what did it, such as tenants.acme.mode, with its place in the file of
	// profiles where it stands there.
	Rule   string `json:"rule"`
	File   string `json:"file,omitempty"`
	Line   int    `json:"line,omitempty"`
	Reason string `json:"reason"` // in a sentence
}

// The values of Route.Route.
const (
	RouteHost    = "host"
	RouteSandbox = "sandbox"
	RouteDenied  = "denied"
)

// Route is the answer to POST /v1/policy/route: where a task runs, and why.
type Route struct {
	Route    string `json:"route"` // one of the Route constants
	TaskType string `json:"taskType"`
	// Kind is what the table says of the type: host, sandbox or policy.
	Kind   string `json:"kind"`
	Reason string `json:"reason"`
	// Session says whose sandbox it is: task for a fresh one, workflow-instance for one
	// that tasks of an instance may share; empty where it is none.
	Session     string          `json:"session,omitempty"`
	Destination *Destination    `json:"destination,omitempty"`
	Policy      EffectivePolicy `json:"policy"`
}

// A Destination is what the gate's policy says of where a call goes.
type Destination struct {
	Host    string `json:"host"`
	Port    uint16 `json:"port"`
	Allowed bool   `json:"allowed"`
	// Reason is one of the gate's reasons; Rule, Group and Line are those of the allowlist
	// that decided.
	Reason    string          `json:"reason"`
	Rule      string          `json:"rule,omitempty"`
	Group     string          `json:"group,omitempty"`
	Line      int             `json:"line,omitempty"`
	Detail    string          `json:"detail,omitempty"`
	Addresses []JudgedAddress `json:"addresses,omitempty"`
}

// A JudgedAddress is one that the host of a call led to.
type JudgedAddress struct {
	Address string `json:"address"`
	Allowed bool   `json:"allowed"`
	Detail  string `json:"detail,omitempty"` // why not
}

// A WorkflowInstance is the answer to GET /v1/workflows/{definition}/{instance}: what the
// instance's first run was given by its document, which its later runs do not exceed.
type WorkflowInstance struct {
	Definition string    `json:"definition"`
	Version    string    `json:"version,omitempty"`
	Instance   string    `json:"instance"`
	Began      time.Time `json:"began"`
	Execution  string    `json:"executionId"` // the first run
	// EffectivePolicy is the first run's.
	EffectivePolicy EffectivePolicy `json:"effectivePolicy"`
	// Bounds are what later runs may have at most, by the words of the file of profiles:
	// levels by their names, lists of names, times in ns, costs in millionths of a US dollar.
	Bounds json.RawMessage `json:"bounds"`
}
