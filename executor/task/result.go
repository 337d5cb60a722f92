package task

import (
	"fmt"
	"time"

	"sallyport/executor/agent"
	"sallyport/executor/api"
	"sallyport/firewall/account"
)

// An ending is what is known of a job once it is over.
type ending struct {
	agent     agent.Outcome
	exitCode  *int
	artifacts []api.Artifact
}

// A summary is all that is known of a task at its end.
type summary struct {
	ending
	receipt account.Receipt
	github  *api.GithubReceipt
	err     *api.Error
}

// Failed is the result of an execution that ended before it ran.
func Failed(id string, accepted time.Time, isolation api.Isolation, timings api.Timings, err *api.Error) api.Result {
	timings.Total = time.Since(accepted).Milliseconds()
	return summary{err: err}.result(id, timings, isolation)
}

// result puts the result together.
func (s summary) result(id string, timings api.Timings, isolation api.Isolation) api.Result {
	res := api.Result{
		Success:                  s.err == nil,
		Output:                   s.agent.Output,
		OutputTruncated:          s.agent.OutputTruncated || s.err != nil && s.err.Code == api.CodeOutputTooLarge,
		Turns:                    s.agent.Turns,
		Error:                    s.err,
		DurationMS:               timings.Total,
		SessionID:                s.agent.SessionID,
		CostUSD:                  s.agent.Usage.CostUSD,
		InputTokens:              s.agent.Usage.InputTokens,
		CacheCreationInputTokens: s.agent.Usage.CacheCreationTokens,
		CacheReadInputTokens:     s.agent.Usage.CacheReadTokens,
		OutputTokens:             s.agent.Usage.OutputTokens,
		APIDurationMS:            s.agent.APIDurationMS,
		StopReason:               stopReason(s.err, s.agent.StopReason),
		ExitCode:                 s.exitCode,
		ExecutionID:              id,
		Receipt:                  s.receipt,
		Artifacts:                s.artifacts,
		Timings:                  timings,
		Isolation:                isolation,
		Github:                   s.github,
	}
	if res.Receipt.Hosts == nil {
		res.Receipt.Hosts = []account.ReceiptHost{}
	}
	if res.Artifacts == nil {
		res.Artifacts = []api.Artifact{}
	}
	return res
}

// stopReason is the original contract's word for how a run ended. agents is the
// adapter's, which counts only where the agent had the last word.
func stopReason(err *api.Error, agents string) string {
	if err == nil {
		if agents == "" {
			return "success"
		}
		return agents
	}
	switch err.Code {
	case api.CodeTimeout:
		return "error_timeout"
	case api.CodeBudget:
		return "error_quota"
	case api.CodeCancelled:
		return "error_aborted"
	case api.CodeCommandFailed:
		if agents == "" {
			return fmt.Sprintf("error_exit_%v", err.Details["exitCode"])
		}
		return agents
	case api.CodeAgentFailed:
		if agents == "" {
			return "error_agent"
		}
		return agents
	}
	return "error_sandbox"
}
