package run

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"sallyport/entrypoint/github"
	"sallyport/entrypoint/wire"
	"sallyport/executor/agent"
	"sallyport/executor/api"
	"sallyport/executor/backend"
)

const (
	// checkoutTimeout bounds the filling of a workspace.
	checkoutTimeout = 2 * time.Minute
	// checkoutGrace is what a checkout has from TERM to KILL, by PID 1: it removes what
	// it has made.
	checkoutGrace = 10 * time.Second
	// checkoutSlack is what PID 1 has beyond that to tell of the end.
	checkoutSlack = 5 * time.Second
)

// checkout fills the workspace before the agent starts, as far as it can. The
// failure is that of a run which has ended meanwhile.
func (x *execution) checkout(ctx context.Context, sandbox backend.Sandbox, session *wire.Session) *api.Error {
	if x.github == nil || x.plan.GitHub.Branch == "" {
		return nil
	}
	x.stage("checkout")
	// A sandbox that does not react must not hold the run up: what ends cctx ends the
	// session.
	cctx, give := context.WithTimeout(context.WithoutCancel(ctx), checkoutTimeout+checkoutGrace+checkoutSlack)
	defer give()
	late := time.AfterFunc(checkoutTimeout, func() { session.Signal("TERM") })
	defer late.Stop()
	unwatch := context.AfterFunc(ctx, func() { x.endCheckout(ctx, cctx, session, give) })
	defer unwatch()
	outcome, why := x.runCheckout(cctx, session)
	if ctx.Err() != nil {
		return x.cause(ctx, nil)
	}
	if outcome == api.CheckoutFailed && !late.Stop() {
		why += fmt.Sprintf("; it took longer than %v", checkoutTimeout)
	}
	x.before = x.toll(sandbox, session) // which is not the job's
	if limit := x.before.limit(); outcome == api.CheckoutFailed && limit != "" {
		why += "; the sandbox ran out of " + limit
	}
	x.github.mu.Lock()
	x.github.receipt.Checkout = outcome
	x.github.note()
	x.github.mu.Unlock()
	if why != "" {
		x.warn("%s", why)
	}
	return nil
}

// endCheckout ends a checkout whose run has ended: in order if stop would, at once if
// not.
func (x *execution) endCheckout(ctx, cctx context.Context, session *wire.Session, give context.CancelFunc) {
	switch x.cause(ctx, nil).Code {
	case api.CodeTimeout, api.CodeCancelled:
		if session.Signal("TERM") == nil {
			wake(cctx, stopTimeout)
		}
	}
	give()
}

// runCheckout runs the job and says what came of it, and why.
func (x *execution) runCheckout(ctx context.Context, session *wire.Session) (outcome, why string) {
	p, a := x.plan.GitHub, x.github.given.Access
	spec, err := json.Marshal(github.CheckoutSpec{
		URL:        fmt.Sprintf("https://%s/%s/%s.git", a.Host, a.Owner, p.Repo),
		Branch:     p.Branch,
		BaseBranch: p.Base,
		Shallow:    p.Shallow,
	})
	if err != nil {
		return api.CheckoutFailed, fmt.Sprintf("the workspace could not be filled: %v", err)
	}
	var said tail
	job := agent.Checkout(x.input())
	job.ID = x.id + "-checkout"
	job.Limits.KillGraceMS = int(checkoutGrace.Milliseconds())
	exit, err := session.Run(ctx, job, strings.NewReader(string(spec)), wire.Handlers{Stderr: said.add})
	switch {
	case err == nil && exit.Code == 0:
		return api.CheckoutDone, ""
	case err == nil && exit.Code == github.ExitNotEmpty:
		return api.CheckoutSkipped, "the workspace was not filled, because it holds something already"
	case err != nil:
		return api.CheckoutFailed, fmt.Sprintf("the workspace could not be filled: %v", err)
	}
	return api.CheckoutFailed, fmt.Sprintf("the workspace could not be filled (status %d %s%s): %s", exit.Code, exit.Signal, exit.Error, printable(said.String()))
}
