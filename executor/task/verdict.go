package task

import (
	"context"
	"errors"

	"sallyport/executor/api"
	"sallyport/executor/backend"
	"sallyport/executor/place"
)

// judge says whether the task failed, and of what: the executor's own reasons
// first, then the kernel's and the engine's word, then PID 1's, then the agent's.
func (j *job) judge(ctx context.Context, p *place.Place, limits backend.Limits) *api.Error {
	if ctx.Err() != nil {
		return place.Cause(ctx, nil)
	}
	if j.escape != nil {
		return &api.Error{
			Code:    api.CodeEscape,
			Message: "the sandbox sent artifacts that it must not send: " + j.escape.Error(),
			Details: map[string]any{"escapeKind": "artifact_" + j.escape.Kind},
		}
	}
	if j.err != nil || j.exit.Code != 0 || j.exit.Signal != "" {
		if failure := j.limitHit(p, limits); failure != nil {
			return failure
		}
	}
	if j.err != nil {
		return &api.Error{
			Code:      api.CodeLost,
			Message:   "the sandbox ended before its job did: " + j.rec.redactor.String(j.err.Error()),
			Retryable: true,
			Details:   p.LastWords(),
		}
	}
	if j.agent.Err == nil && j.exit.Code != 0 && !j.started {
		return place.StartFailed("start the agent", errors.New(j.rec.redactor.String(j.exit.Error)))
	}
	if j.agent.Err != nil {
		j.addStderr(j.agent.Err)
	}
	return j.agent.Err
}

// limitHit says which limit of the sandbox a process of the job ran into that did not
// end well, or nil.
func (j *job) limitHit(p *place.Place, limits backend.Limits) *api.Error {
	details := map[string]any{"exitCode": j.exit.Code}
	if j.exit.Signal != "" {
		details = map[string]any{"signal": j.exit.Signal}
	}
	code, counted := api.CodeMemory, p.Counted(j.err == nil)
	switch {
	case counted.Limit() == "":
		return nil
	case counted.Killed > 0:
		details["memoryLimitBytes"] = limits.MemoryBytes
	default:
		code, details["pidsLimit"] = api.CodePIDs, limits.PIDs
	}
	return &api.Error{Code: code, Message: "the sandbox ran out of " + counted.Limit(), Details: details}
}

// addStderr puts the end of the agent's standard error beside its failure.
func (j *job) addStderr(failure *api.Error) {
	if text := place.Printable(j.lastStderr.String()); text != "" {
		if failure.Details == nil {
			failure.Details = map[string]any{}
		}
		failure.Details["stderr"] = text
	}
}
