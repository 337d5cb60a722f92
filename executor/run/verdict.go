package run

import (
	"fmt"
	"time"

	"sallyport/executor/agent"
	"sallyport/executor/api"
	"sallyport/firewall/account"
)

// An outcome is all that is known of a run at its end.
type outcome struct {
	agent     agent.Outcome
	exitCode  *int
	receipt   account.Receipt
	artifacts []api.Artifact
	github    *api.GithubReceipt
	err       *api.Error
}

func startFailed(what string, err error) *api.Error {
	return &api.Error{Code: api.CodeStartFailed, Message: fmt.Sprintf("%s: %v", what, err), Retryable: true}
}

func gateUnavailable(message string) *api.Error {
	return &api.Error{Code: api.CodeGateUnavailable, Message: message, Retryable: true}
}

func cancelled(message string) *api.Error {
	return &api.Error{Code: api.CodeCancelled, Message: message}
}

func timedOut(limit time.Duration) *api.Error {
	return &api.Error{
		Code:    api.CodeTimeout,
		Message: fmt.Sprintf("the run took longer than its limit of %v", limit),
		Details: map[string]any{"timeoutMs": limit.Milliseconds()},
	}
}

// Failed is the result of an execution that ended before it ran.
func Failed(id string, accepted time.Time, isolation api.Isolation, timings api.Timings, err *api.Error) api.Result {
	x := &execution{Runner: &Runner{Isolation: isolation}, id: id, accepted: accepted, timings: timings}
	x.outcome.err = err
	return x.result()
}

// result puts the result together.
func (x *execution) result() api.Result {
	o := x.outcome
	x.timings.Total = x.since()
	res := api.Result{
		Success:                  o.err == nil,
		Output:                   o.agent.Output,
		OutputTruncated:          o.agent.OutputTruncated || o.err != nil && o.err.Code == api.CodeOutputTooLarge,
		Turns:                    o.agent.Turns,
		Error:                    o.err,
		DurationMS:               x.timings.Total,
		SessionID:                o.agent.SessionID,
		CostUSD:                  o.agent.Usage.CostUSD,
		InputTokens:              o.agent.Usage.InputTokens,
		CacheCreationInputTokens: o.agent.Usage.CacheCreationTokens,
		CacheReadInputTokens:     o.agent.Usage.CacheReadTokens,
		OutputTokens:             o.agent.Usage.OutputTokens,
		APIDurationMS:            o.agent.APIDurationMS,
		StopReason:               stopReason(o.err, o.agent.StopReason),
		ExitCode:                 o.exitCode,
		ExecutionID:              x.id,
		Receipt:                  o.receipt,
		Artifacts:                o.artifacts,
		Timings:                  x.timings,
		Isolation:                x.Isolation,
		Github:                   o.github,
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
