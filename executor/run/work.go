package run

import (
	"context"
	"errors"
	"strings"
	"time"

	"sallyport/entrypoint/wire"
	"sallyport/executor/api"
	"sallyport/executor/backend"
)

// work runs the job in a sandbox that has been started, and judges it.
func (x *execution) work(ctx context.Context, sandbox backend.Sandbox, disk *disk) *api.Error {
	session, failure := x.ready(ctx, sandbox)
	if failure != nil {
		return failure
	}
	defer session.Close()
	x.timings.Ready = x.since()
	x.stage("ready")

	if failure := disk.await(); failure != nil {
		return failure
	}
	wctx, unwatch := context.WithCancel(ctx)
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		disk.watch(wctx)
	}()
	defer func() { unwatch(); <-watched }()

	if failure := x.checkout(ctx, sandbox, session); failure != nil {
		return failure
	}
	j := x.newJob()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		j.run(session)
	}()
	defer x.keepFresh(ctx, session)()
	select {
	case <-ended:
	case <-ctx.Done():
		x.stop(ctx, sandbox, session, ended)
	}
	j.finish()
	failure = x.judge(ctx, sandbox, session, j)
	if failure != nil && failure == j.outcome.Err {
		j.addStderr(failure)
	}
	return failure
}

// ready waits for PID 1. A sandbox that does not come up is never given a job.
func (x *execution) ready(ctx context.Context, sandbox backend.Sandbox) (*wire.Session, *api.Error) {
	rctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	session, err := wire.Open(rctx, sandbox.Stdin(), sandbox.Stdout())
	if err != nil {
		failure := startFailed("start the sandbox", err)
		failure.Details = x.epitaph(sandbox)
		return nil, x.cause(ctx, failure)
	}
	return session, nil
}

// epitaphTimeout is how long a sandbox that seems to be gone has to be so.
const epitaphTimeout = 2 * time.Second

// epitaph is what the engine says of a sandbox that ended before its time, or nil
// where it has not ended.
func (x *execution) epitaph(sandbox backend.Sandbox) map[string]any {
	ctx, cancel := context.WithTimeout(context.Background(), epitaphTimeout)
	defer cancel()
	exit, err := sandbox.Wait(ctx)
	if err != nil {
		return nil
	}
	details := map[string]any{"sandboxExitCode": exit.Code}
	if text := printable(x.redactor.String(exit.Stderr)); text != "" {
		details["stderr"] = text
	}
	return details
}

// printable is text of unknown origin as it may stand in a result.
func printable(s string) string {
	return strings.TrimSpace(strings.ToValidUTF8(s, "\uFFFD"))
}

// stop ends a job because ctx has ended. A run that is merely late or unwanted
// may end in order; one that broke a bound, or whose gate is gone, may not.
func (x *execution) stop(ctx context.Context, sandbox backend.Sandbox, session *wire.Session, ended <-chan struct{}) {
	switch x.cause(ctx, nil).Code {
	case api.CodeTimeout, api.CodeCancelled:
		if session.Signal("TERM") == nil {
			timer := time.NewTimer(stopTimeout)
			defer timer.Stop()
			select {
			case <-ended:
				return
			case <-timer.C:
			}
		}
	}
	rctx, cancel := context.WithTimeout(context.Background(), teardownTimeout)
	defer cancel()
	if err := sandbox.Remove(rctx); err != nil {
		x.log.Error("the sandbox could not be killed", "sandbox", sandbox.ID(), "error", err)
	}
	session.Close() // ends the job here, whatever the sandbox does
	<-ended
}

// judge says whether the run failed, and of what: the executor's own reasons
// first, then the kernel's and the engine's word, then PID 1's, then the agent's.
func (x *execution) judge(ctx context.Context, sandbox backend.Sandbox, session *wire.Session, j *job) *api.Error {
	if ctx.Err() != nil {
		return x.cause(ctx, nil)
	}
	if j.escape != nil {
		return &api.Error{
			Code:    api.CodeEscape,
			Message: "the sandbox sent artifacts that it must not send: " + j.escape.Error(),
			Details: map[string]any{"escapeKind": "artifact_" + j.escape.Kind},
		}
	}
	if j.err != nil || j.exit.Code != 0 || j.exit.Signal != "" {
		if failure := x.limitHit(sandbox, session, j); failure != nil {
			return failure
		}
	}
	if j.err != nil {
		return &api.Error{
			Code:      api.CodeLost,
			Message:   "the sandbox ended before its job did: " + x.redactor.String(j.err.Error()),
			Retryable: true,
			Details:   x.epitaph(sandbox),
		}
	}
	if j.outcome.Err == nil && j.exit.Code != 0 && !j.started {
		return startFailed("start the agent", errors.New(x.redactor.String(j.exit.Error)))
	}
	return j.outcome.Err
}

// addStderr puts the end of the agent's standard error beside its failure.
func (j *job) addStderr(failure *api.Error) {
	if text := printable(j.lastStderr.String()); text != "" {
		if failure.Details == nil {
			failure.Details = map[string]any{}
		}
		failure.Details["stderr"] = text
	}
}
