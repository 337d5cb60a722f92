// Package task is the life of one job in a place: its token, the lease of the place's
// cell, the checkout, the job itself and the verdict. Runner.Run has a place with one
// task in it, which is a run. It believes the engine before PID 1, and PID 1 before the
// agent, and it leaves nothing behind.
package task

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"sallyport/entrypoint/wire"
	"sallyport/executor/agent"
	"sallyport/executor/api"
	"sallyport/executor/place"
	"sallyport/executor/plan"
	"sallyport/executor/redact"
	"sallyport/executor/store"
	"sallyport/executor/tree"
)

// A Runner runs plans. All fields are required unless they say otherwise.
type Runner struct {
	Places   *place.Places
	Gate     Gate
	Redactor *redact.Redactor
	Log      *slog.Logger
	// Secrets has what plans name; nil where no plan names any.
	Secrets Secrets
	// GitHub gives tasks their tokens; nil where no plan asks for one.
	GitHub *GitHub
}

// stopTimeout is what a job has from TERM to the removal of its sandbox.
const stopTimeout = 4 * time.Second

// A task is one plan under way.
type task struct {
	*Runner
	plan    *plan.Plan
	rec     *recorder
	place   *place.Place
	session *wire.Session // the wire, once the place is ready
	access  *access       // to GitHub; nil for none
	secrets []agent.Secret
	timings api.Timings
	summary
}

// Run runs a plan in a place of its own to its end and returns the result, which it does
// not record. The context's cause, an *api.Error, is the verdict of a run that ctx ends.
// timings holds the stages so far.
func (r *Runner) Run(ctx context.Context, p *plan.Plan, e *store.Entry, timings api.Timings) api.Result {
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	limit := time.AfterFunc(p.Limits.WallClock, func() { fail(timedOut(p.Limits.WallClock)) })
	defer limit.Stop()
	redactor := r.Redactor.Fork()
	given, err := r.takeSecrets(ctx, p, redactor) // first, for what is recorded must not tell of them
	t := &task{Runner: r, plan: p, rec: newRecorder(r, p, e, redactor, fail), secrets: given, timings: timings}
	if err != nil {
		t.err = t.secretFailed(ctx, err)
	} else {
		t.err = t.perform(ctx)
	}
	t.timings.Total = t.rec.since()
	isolation := r.Places.Backends.Isolation(p.Backend)
	isolation.Sandbox, isolation.ImageDigest = t.place.Sandbox()
	res := t.result(e.Meta.ID, t.timings, isolation)
	t.rec.close(res)
	return res
}

func timedOut(limit time.Duration) *api.Error {
	return &api.Error{
		Code:    api.CodeTimeout,
		Message: fmt.Sprintf("the run took longer than its limit of %v", limit),
		Details: map[string]any{"timeoutMs": limit.Milliseconds()},
	}
}

// perform goes through the stages. Each one's undoing is deferred, so teardown
// runs in the opposite order whatever happens.
func (t *task) perform(ctx context.Context) (failure *api.Error) {
	if t.place, failure = t.Places.Open(ctx, t.spec()); failure != nil {
		return failure
	}
	defer t.place.Close()

	if t.plan.GitHub != nil {
		t.rec.stage("token")
		if t.access, failure = t.GitHub.open(ctx, t.plan, t.rec); failure != nil {
			return failure
		}
		defer func() { t.github = t.access.close() }()
		t.timings.Token = t.rec.since()
	}

	t.rec.stage("cell")
	lease, failure := openLease(ctx, t.Gate, t.place, t.asked(), t.rec)
	if failure != nil {
		return failure
	}
	defer func() { t.receipt = lease.end() }()
	t.timings.Cell = t.rec.since()

	t.rec.stage("start")
	if failure := t.place.Start(ctx); failure != nil {
		return failure
	}
	defer func() {
		t.rec.stage("teardown")
		for _, w := range t.place.Stop() {
			t.rec.warn("%s", w)
		}
	}()
	t.timings.Start = t.rec.since()
	return t.work(ctx)
}

// asked is the policy that the plan asks for. What somebody has approved has to be that of
// then, to the digest.
func (t *task) asked() wanted {
	w := wanted{policy: t.plan.Policy}
	if e := t.plan.Effective; e != nil && len(e.Approvals) > 0 {
		w.digest = e.NetworkPolicyDigest
	}
	return w
}

// spec is the place that the plan asks for.
func (t *task) spec() place.Spec {
	return place.Spec{
		ID:      t.rec.entry.Meta.ID,
		Backend: t.plan.Backend,
		Image:   t.plan.Image,
		UID:     t.plan.UID,
		GID:     t.plan.GID,
		Dir:     t.plan.Dir,
		Limits:  t.plan.Limits.Limits,
		Growth:  tree.Size{Bytes: t.plan.Limits.WorkspaceBytes, Entries: t.plan.Limits.WorkspaceFiles},
		Redact:  t.rec.redactor.String,
		Log:     t.rec.log,
	}
}

// work enters a place whose sandbox has been started, runs the job there and judges it.
func (t *task) work(ctx context.Context) (failure *api.Error) {
	if t.session, failure = t.place.Ready(ctx); failure != nil {
		return failure
	}
	t.timings.Ready = t.rec.since()
	t.rec.stage("ready")
	if failure := t.place.Enter(ctx, t.rec.fail); failure != nil {
		return failure
	}
	defer t.place.Leave()
	if failure := t.checkout(ctx); failure != nil {
		return failure
	}
	j := newJob(t.plan, t.input(), t.rec)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		j.run(t.session)
	}()
	defer t.access.renew(ctx, t.session)()
	select {
	case <-ended:
	case <-ctx.Done():
		t.stop(ctx, ended)
	}
	j.finish()
	t.ending = j.ending
	if j.firstOutput >= 0 {
		t.timings.FirstOutput = j.firstOutput
	}
	return j.judge(ctx, t.place, t.plan.Limits.Limits)
}

// input is what the agent's adapter gets to know.
func (t *task) input() agent.Input {
	in := t.plan.Input
	in.Secrets = t.secrets
	if t.access != nil {
		in.GitHub = &t.access.given
	}
	return in
}

// stop ends a job because ctx has ended. A task that is merely late or unwanted
// may end in order; one that broke a bound, or whose gate is gone, may not.
func (t *task) stop(ctx context.Context, ended <-chan struct{}) {
	if orderly(ctx) && t.session.Signal("TERM") == nil {
		timer := time.NewTimer(stopTimeout)
		defer timer.Stop()
		select {
		case <-ended:
			return
		case <-timer.C:
		}
	}
	t.place.Kill()
	<-ended
}

// orderly reports whether a task that ctx has ended may end in order.
func orderly(ctx context.Context) bool {
	switch place.Cause(ctx, nil).Code {
	case api.CodeTimeout, api.CodeCancelled:
		return true
	}
	return false
}
