// Package run is the life of one run: workspace, cell, lease, sandbox, job,
// watch, verdict and teardown. It believes the engine before PID 1, and PID 1
// before the agent, and it leaves nothing behind.
package run

import (
	"context"
	"iter"
	"log/slog"
	"time"

	"sallyport/executor/api"
	"sallyport/executor/backend"
	"sallyport/executor/plan"
	"sallyport/executor/redact"
	"sallyport/executor/store"
	"sallyport/firewall/account"
	"sallyport/gate/control"
)

// A Gate is the gate's control API as a run needs it; *control.Client is one.
type Gate interface {
	Lease(ctx context.Context, id string, l control.Lease) (control.Cell, error)
	Release(ctx context.Context, id string) (control.Cell, error)
	Decisions(ctx context.Context, run string, follow bool) iter.Seq2[account.Record, error]
}

// A Runner runs plans. All fields are required unless they say otherwise.
type Runner struct {
	Backend   backend.Backend
	Cells     backend.Cells
	Gate      Gate
	Isolation api.Isolation
	Redactor  *redact.Redactor
	Log       *slog.Logger
	// GitHub gives runs their tokens; nil where no plan asks for one.
	GitHub *GitHub
	// Workspaces is the directory that holds the workspaces of runs that bring
	// none. Nobody but the executor may enter it.
	Workspaces string
	// Floor is what the file system of a workspace must have left: with less no run
	// starts, and runs that write there are ended.
	Floor Floor
	// AllowSockets lets a caller's directory hold sockets and FIFOs, which lead past the
	// gate.
	AllowSockets bool
	// Leftover is told of a workspace that could not be removed, at least not in
	// time. If nil, it stays.
	Leftover func(dir string)

	pressure pressure
}

// The bounds in time of a run's steps.
const (
	acquireTimeout  = 60 * time.Second
	leaseTimeout    = 10 * time.Second
	startTimeout    = 60 * time.Second
	readyTimeout    = 60 * time.Second // of a sandbox that has not ended
	stopTimeout     = 4 * time.Second  // from TERM to the removal of the sandbox
	killGrace       = 2 * time.Second  // from TERM to KILL, by PID 1
	teardownTimeout = 30 * time.Second
)

// An execution is one run under way.
type execution struct {
	*Runner
	id       string
	plan     *plan.Plan
	entry    *store.Entry
	accepted time.Time
	sessions *transcript
	log      *slog.Logger
	// redactor knows what the runner's knows and the secrets of this run.
	redactor *redact.Redactor
	github   *access // nil where the run has none
	before   toll    // what the sandbox had run into before the job

	// fail ends the run with an error; the first one counts.
	fail context.CancelCauseFunc

	timings api.Timings
	outcome outcome
}

// Run runs a plan to its end and returns the result, which it does not record.
// The context's cause, an *api.Error, is the verdict of a run that ctx ends.
// timings holds the stages so far.
func (r *Runner) Run(ctx context.Context, p *plan.Plan, e *store.Entry, timings api.Timings) api.Result {
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	x := &execution{
		Runner:   r,
		id:       e.Meta.ID,
		plan:     p,
		entry:    e,
		accepted: e.Meta.Accepted,
		log:      r.Log.With("run", e.Meta.ID),
		redactor: r.Redactor.Fork(),
		fail:     fail,
		timings:  timings,
	}
	limit := time.AfterFunc(p.Limits.WallClock, func() { fail(timedOut(p.Limits.WallClock)) })
	defer limit.Stop()
	x.sessions = x.openTranscript()
	x.outcome.err = x.perform(ctx)
	res := x.result()
	x.sessions.close(res)
	return res
}

// perform goes through the stages. Each one's undoing is deferred, so teardown
// runs in the opposite order whatever happens.
func (x *execution) perform(ctx context.Context) *api.Error {
	dir, err := x.workspace()
	if err != nil {
		return x.cause(ctx, startFailed("make the workspace", err))
	}
	defer x.removeWorkspace()
	disk, failure := x.openDisk(ctx, dir)
	if failure != nil {
		return x.cause(ctx, failure)
	}
	defer disk.close()

	if x.plan.GitHub != nil {
		x.stage("token")
		if failure := x.openAccess(ctx); failure != nil {
			return failure
		}
		defer x.github.close()
		x.timings.Token = x.since()
	}

	x.stage("cell")
	lease, failure := x.lease(ctx)
	if failure != nil {
		return failure
	}
	defer x.endLease(lease)
	x.timings.Cell = x.since()

	x.stage("start")
	sandbox, failure := x.start(ctx, lease.cell, dir)
	if failure != nil {
		return failure
	}
	defer func() {
		x.stage("teardown")
		x.removeSandbox(sandbox, lease)
		disk.leave()
	}()
	x.timings.Start = x.since()
	return x.work(ctx, sandbox, disk)
}

// since is the time since the run was accepted, in ms.
func (x *execution) since() int64 { return time.Since(x.accepted).Milliseconds() }

// cause returns why ctx has ended, or otherwise where it has not.
func (x *execution) cause(ctx context.Context, otherwise *api.Error) *api.Error {
	if ctx.Err() == nil {
		return otherwise
	}
	if e, ok := context.Cause(ctx).(*api.Error); ok {
		return e
	}
	return cancelled("the run was cancelled")
}

// start starts the sandbox.
func (x *execution) start(ctx context.Context, c backend.Cell, dir string) (backend.Sandbox, *api.Error) {
	sctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	sandbox, err := x.Backend.Start(sctx, backend.Spec{
		Run:       x.id,
		Image:     x.plan.Image,
		UID:       x.plan.UID,
		GID:       x.plan.GID,
		Workspace: dir,
		Cell:      c,
		Limits:    x.plan.Limits.Limits,
	})
	if err != nil {
		return nil, x.cause(ctx, startFailed("start the sandbox", err))
	}
	return sandbox, nil
}

// removeSandbox removes the sandbox. A cell whose sandbox may still be there
// must not be used again.
func (x *execution) removeSandbox(sandbox backend.Sandbox, l *lease) {
	ctx, cancel := context.WithTimeout(context.Background(), teardownTimeout)
	defer cancel()
	if err := sandbox.Remove(ctx); err != nil {
		l.spoilt = true
		x.log.Error("the sandbox could not be removed", "sandbox", sandbox.ID(), "error", err)
	}
}
