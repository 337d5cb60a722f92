package run

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"sallyport/entrypoint"
	"sallyport/entrypoint/github"
	"sallyport/executor/agent"
	"sallyport/executor/api"
)

// checkoutTimeout bounds the filling of a workspace.
const checkoutTimeout = 2 * time.Minute

// checkout fills the workspace before the agent starts, as far as it can. The
// failure is that of a run which has ended meanwhile.
func (x *execution) checkout(ctx context.Context, session *entrypoint.Session) *api.Error {
	if x.github == nil || x.plan.GitHub.Branch == "" {
		return nil
	}
	x.stage("checkout")
	limit := time.AfterFunc(checkoutTimeout, func() { session.Signal("TERM") })
	defer limit.Stop()
	unwatch := context.AfterFunc(ctx, func() { session.Signal("KILL") })
	defer unwatch()
	outcome, why := x.runCheckout(session)
	if ctx.Err() != nil {
		return x.cause(ctx, nil)
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

// runCheckout runs the job and says what came of it, and why.
func (x *execution) runCheckout(session *entrypoint.Session) (outcome, why string) {
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
	exit, err := session.Run(context.Background(), job, strings.NewReader(string(spec)), entrypoint.Handlers{Stderr: said.add})
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
