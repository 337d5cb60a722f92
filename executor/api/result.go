package api

import (
	"sallyport/firewall/account"
)

// Result is the outcome of an execution: the original's fields, then ours.
type Result struct {
	Success bool   `json:"success"`
	Output  string `json:"output"`
	Turns   int    `json:"turns"`
	Error   *Error `json:"error,omitempty"`
	// DurationMS is the wall-clock time from acceptance to the end, in ms.
	DurationMS               int64   `json:"durationMs"`
	SessionID                string  `json:"sessionId,omitempty"`
	CostUSD                  float64 `json:"costUsd"`
	InputTokens              int64   `json:"inputTokens"`
	CacheCreationInputTokens int64   `json:"cacheCreationInputTokens"`
	CacheReadInputTokens     int64   `json:"cacheReadInputTokens"`
	OutputTokens             int64   `json:"outputTokens"`
	// APIDurationMS is the time the agent spent waiting for its model, in ms.
	APIDurationMS int64 `json:"apiDurationMs"`
	// StopReason is one of the original's: success, unknown, error_fatal,
	// error_tool, error_truncated, error_agent, error_aborted, error_exit_N,
	// error_sandbox, error_quota, error_timeout.
	StopReason string `json:"stopReason"`

	// ExitCode is that of the agent's process: its status, or 128 and the number of the
	// signal that ended it; nil where it did not start or nobody saw its end.
	ExitCode    *int            `json:"exitCode,omitempty"`
	ExecutionID string          `json:"executionId"`
	Receipt     account.Receipt `json:"receipt"`
	Artifacts   []Artifact      `json:"artifacts"`
	Timings     Timings         `json:"timings"`
	Isolation   Isolation       `json:"isolation"`
	// Github says what the run could do on GitHub; nil where it asked for nothing.
	Github *GithubReceipt `json:"github,omitempty"`
	// EffectivePolicy is what the run might do at most, computed when it was accepted; nil
	// in a record of before there were any.
	EffectivePolicy *EffectivePolicy `json:"effectivePolicy,omitempty"`
	// Audit says where in the audit log the record of this run is; nil where none could be
	// written.
	Audit *AuditPlace `json:"audit,omitempty"`
	// OutputTruncated says that Output was cut at the cap.
	OutputTruncated bool `json:"outputTruncated,omitempty"`
}

// An AuditPlace says where in the audit log a record is, and which one it is.
type AuditPlace struct {
	Index  int64  `json:"index"`
	SHA256 string `json:"sha256"` // of the record's envelope, in hexadecimal
}

// An Artifact is a file that the run declared and the executor keeps.
type Artifact struct {
	Name   string `json:"name"` // relative to the workspace, with slashes
	Size   int64  `json:"size"` // in bytes
	SHA256 string `json:"sha256"`
	// Skipped says why a declared file was not kept; Size and SHA256 are then empty.
	Skipped string `json:"skipped,omitempty"`
}

// Timings are when each stage of an execution was done, in ms since the call
// was accepted; -1 for a stage that was not reached.
type Timings struct {
	Queue       int64 `json:"queue"`
	Policy      int64 `json:"policy"`
	Token       int64 `json:"token"`
	Cell        int64 `json:"cell"`
	Start       int64 `json:"start"`
	Ready       int64 `json:"ready"`
	FirstOutput int64 `json:"firstOutput"`
	Total       int64 `json:"total"`
}

// Isolation says what held the sandbox.
type Isolation struct {
	Backend string `json:"backend"`           // docker
	Model   string `json:"model"`             // container
	Sandbox string `json:"sandbox,omitempty"` // the backend's identifier of it; empty where none was started
	// ImageDigest is that of the image that ran, sha256:...; empty where it has none.
	ImageDigest string `json:"imageDigest,omitempty"`
}

// Code is a stable failure code.
type Code string

// The failure codes.
const (
	CodeInvalidRequest   Code = "invalid_request"
	CodeUnauthorized     Code = "unauthorized"
	CodeForbidden        Code = "forbidden" // details.rights
	CodeNotFound         Code = "not_found"
	CodeIdempotencyReuse Code = "idempotency_key_reused"
	CodeInternal         Code = "internal_error"
	CodeGone             Code = "execution_gone" // details.executionId
	CodeStartFailed      Code = "sandbox_start_failed"
	CodePolicyDenied     Code = "sandbox_policy_denied"
	CodeTimeout          Code = "sandbox_timeout"
	CodeMemory           Code = "sandbox_memory_exceeded"
	CodeOutputTooLarge   Code = "sandbox_output_too_large"
	CodeDisk             Code = "sandbox_disk_exceeded"
	CodePIDs             Code = "sandbox_pids_exceeded"
	CodeLost             Code = "sandbox_lost"
	CodeBusy             Code = "sandbox_busy"
	CodeCancelled        Code = "sandbox_cancelled"
	CodeGateUnavailable  Code = "gate_unavailable"
	CodeCapability       Code = "sandbox_capability_denied" // details.requestedCapability
	CodeEscape           Code = "sandbox_escape_attempt"    // details.escapeKind
	CodeCommandFailed    Code = "command_failed"            // details.exitCode
	CodeAgentFailed      Code = "agent_failed"
	CodeGithubToken      Code = "github_token_failed"
	CodeSecret           Code = "secret_unavailable" // details.secret and details.reason
	CodeBudget           Code = "budget_exceeded"    // details.costUsd or details.tokens
	CodeQuota            Code = "quota_exceeded"     // details.quota
)

// Error is why an execution failed after it had started.
type Error struct {
	Code      Code           `json:"code"`
	Message   string         `json:"message"`
	Retryable bool           `json:"retryable"`
	Details   map[string]any `json:"details,omitempty"`
}

func (e *Error) Error() string { return string(e.Code) + ": " + e.Message }

// Execution is the answer to GET /v1/executions/{id} and to an asynchronous POST.
type Execution struct {
	ID     string `json:"executionId"`
	State  string `json:"state"` // one of the State constants
	TaskID string `json:"taskId,omitempty"`
	// Workflow is the request's; nil where it named none.
	Workflow *Workflow `json:"workflow,omitempty"`
	Result   *Result   `json:"result,omitempty"`
}

// The states of an execution.
const (
	StateQueued   = "queued"
	StateRunning  = "running"
	StateFinished = "finished" // Result is set
)
