package task

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"time"

	"sallyport/entrypoint/github"
	"sallyport/entrypoint/wire"
	"sallyport/executor/agent"
	"sallyport/executor/api"
	"sallyport/executor/place"
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

// checkout fills the workspace before the agent starts, as far as it can, where the plan
// asks for it. The failure is that of a task which has ended meanwhile.
func (t *task) checkout(ctx context.Context) *api.Error {
	if t.access == nil || t.plan.GitHub.Branch == "" {
		return nil
	}
	t.rec.stage("checkout")
	// A sandbox that does not react must not hold the task up: what ends cctx ends the
	// session.
	cctx, abort := context.WithTimeout(context.WithoutCancel(ctx), checkoutTimeout+checkoutGrace+checkoutSlack)
	defer abort()
	late := time.AfterFunc(checkoutTimeout, func() { t.session.Signal("TERM") })
	defer late.Stop()
	unwatch := context.AfterFunc(ctx, func() {
		if orderly(ctx) && t.session.Signal("TERM") == nil {
			pause(cctx, stopTimeout)
		}
		abort()
	})
	defer unwatch()
	end, commit, why := t.runCheckout(cctx)
	if ctx.Err() != nil {
		return place.Cause(ctx, nil)
	}
	if end == api.CheckoutFailed && !late.Stop() {
		why += fmt.Sprintf("; it took longer than %v", checkoutTimeout)
	}
	counted := t.place.Count() // which is not the job's
	if limit := counted.Limit(); end == api.CheckoutFailed && limit != "" {
		why += "; the sandbox ran out of " + limit
	}
	t.access.noteCheckout(end, commit)
	if why != "" {
		t.rec.warn("%s", why)
	}
	return nil
}

// gitCommit is a commit as git prints it.
var gitCommit = regexp.MustCompile(`^[0-9a-f]{40}\n$`)

// runCheckout runs the job and says what came of it: the commit, or why there is none.
func (t *task) runCheckout(ctx context.Context) (end, commit, why string) {
	p, a := t.plan.GitHub, t.access.given.Access
	spec, err := json.Marshal(github.CheckoutSpec{
		URL:        fmt.Sprintf("https://%s/%s/%s.git", a.Host, a.Owner, p.Repo),
		Branch:     p.Branch,
		BaseBranch: p.Base,
		Shallow:    p.Shallow,
	})
	if err != nil {
		return api.CheckoutFailed, "", fmt.Sprintf("the workspace could not be filled: %v", err)
	}
	var printed, said tail
	job := agent.Checkout(t.input())
	job.ID = t.rec.entry.Meta.ID + "-checkout"
	job.Limits.KillGraceMS = int(checkoutGrace.Milliseconds())
	exit, err := t.session.Run(ctx, job, strings.NewReader(string(spec)), wire.Handlers{Stdout: printed.add, Stderr: said.add})
	switch {
	case err == nil && exit.Code == 0:
		if commit = printed.String(); !gitCommit.MatchString(commit) {
			commit = ""
		}
		return api.CheckoutDone, strings.TrimSpace(commit), ""
	case err == nil && exit.Code == github.ExitNotEmpty:
		return api.CheckoutSkipped, "", "the workspace was not filled, because it holds something already"
	case err != nil:
		return api.CheckoutFailed, "", fmt.Sprintf("the workspace could not be filled: %v", err)
	}
	return api.CheckoutFailed, "", fmt.Sprintf("the workspace could not be filled (status %d %s%s): %s", exit.Code, exit.Signal, exit.Error, place.Printable(said.String()))
}
