package run

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"sallyport/entrypoint"
	"sallyport/entrypoint/github"
	"sallyport/executor/agent"
	"sallyport/executor/api"
	"sallyport/executor/tokens"
	"sallyport/githubauth"
)

// A GitHub gives runs their access to GitHub.
type GitHub struct {
	Tokens *tokens.Keeper
	// APIURL is the base of the REST API.
	APIURL string
	// Source is what api.GithubReceipt says of the tokens.
	Source string
	// Key reads the App's private key for the run that may have it; nil where none may.
	Key func() ([]byte, error)
}

const (
	identityTimeout = 10 * time.Second
	revokeTimeout   = 20 * time.Second // per run, then the keeper goes on
	checkoutTimeout = 2 * time.Minute
	updateTimeout   = 10 * time.Second
	// freshBefore is how long before the end of a token's life a fresh one is minted;
	// of a short life it is a quarter.
	freshBefore  = 10 * time.Minute
	mintPause    = 30 * time.Second // between attempts at a fresh one
	minMintPause = time.Second
	// keyName and tokenName are what stands in the place of either.
	keyName   = "GITHUB_APP_PRIVATE_KEY"
	tokenName = "GITHUB_TOKEN"
)

// An access is a run's access to GitHub.
type access struct {
	x     *execution
	given agent.GitHub // with the first token
	// minted is when that was asked for.
	minted time.Time

	mu      sync.Mutex // guards what follows
	held    []*tokens.Held
	receipt api.GithubReceipt
}

// input is what the agent's adapter gets to know.
func (x *execution) input() agent.Input {
	in := x.plan.Input
	if x.github != nil {
		in.GitHub = &x.github.given
	}
	return in
}

// openAccess mints the run's token. Without one nothing is started.
func (x *execution) openAccess(ctx context.Context) *api.Error {
	a, p := &access{x: x, minted: time.Now()}, x.plan.GitHub
	var key []byte
	if p.Key {
		var err error
		if key, err = x.GitHub.Key(); err != nil {
			return tokenFailed(fmt.Errorf("read the App's private key: %w", err))
		}
		for line := range strings.Lines(string(key)) {
			if !strings.HasPrefix(line, "-----") {
				x.redactor.Learn(keyName, strings.TrimSpace(line))
			}
		}
	}
	held, err := a.take(ctx)
	if err != nil {
		return x.cause(ctx, tokenFailed(err))
	}
	a.receipt = api.GithubReceipt{
		Profile:      p.Grant.Profile.Name,
		Owner:        p.Grant.Owner,
		Repositories: slices.Clone(p.Grant.Repositories),
		Permissions:  held.Permissions,
		Source:       x.GitHub.Source,
		Downscoped:   held.Downscoped,
		AppKey:       len(key) > 0,
	}
	a.setExpiry(held)
	a.given = agent.GitHub{
		Profile:  p.Grant.Profile.Name,
		Access:   github.Access{Host: x.GitHub.Tokens.Hosts().Git, APIURL: x.GitHub.APIURL, Owner: p.Grant.Owner, Repositories: p.Grant.Repositories},
		Identity: a.identity(ctx, held.Token),
		Token:    held.Value(),
		Key:      key,
	}
	x.github = a
	x.log.Info("GitHub token", "profile", a.receipt.Profile, "owner", a.receipt.Owner, "repositories", a.receipt.Repositories,
		"permissions", a.receipt.Permissions, "downscoped", a.receipt.Downscoped, "appKey", a.receipt.AppKey, "runId", x.plan.Request.Opts.GithubAccess.RunID)
	if !held.Downscoped {
		x.warn("the run has the operator's static GitHub token, which is not narrowed to the profile %q and lives on after the run", a.receipt.Profile)
	}
	if a.receipt.AppKey {
		x.warn("the GitHub App's private key is in the sandbox, since profile and service allow it and the request asks for it")
	}
	return nil
}

// take mints a token, of which nothing that is printed tells from now on.
func (a *access) take(ctx context.Context) (*tokens.Held, error) {
	held, err := a.x.GitHub.Tokens.Take(ctx, a.x.id, a.x.plan.GitHub.Grant)
	if err != nil {
		return nil, err
	}
	a.x.redactor.Learn(tokenName, held.Value())
	a.mu.Lock()
	defer a.mu.Unlock()
	a.held = append(a.held, held)
	return held, nil
}

func (a *access) setExpiry(h *tokens.Held) {
	if !h.Expires.IsZero() {
		a.receipt.ExpiresAt = &h.Expires
	}
}

// identity is whom the run commits as. GitHub's not telling is no reason to fail.
func (a *access) identity(ctx context.Context, t githubauth.Token) github.Identity {
	ctx, cancel := context.WithTimeout(ctx, identityTimeout)
	defer cancel()
	id, err := a.x.GitHub.Tokens.Identity(ctx, t)
	if err != nil {
		a.x.warn("the GitHub App's account is not known, so commits are by nobody in particular: %v", err)
		return github.Identity{}
	}
	return github.Identity{Name: id.Name, Email: id.Email}
}

// close revokes the run's tokens. The sandbox is gone by now.
func (a *access) close() {
	ctx, cancel := context.WithTimeout(context.Background(), revokeTimeout)
	defer cancel()
	a.mu.Lock()
	defer a.mu.Unlock()
	var errs []error
	for _, h := range a.held {
		errs = append(errs, h.Revoke(ctx))
	}
	err := errors.Join(errs...)
	a.receipt.Revoked = err == nil && a.receipt.Downscoped
	if err != nil {
		a.receipt.RevokeError = a.x.redactor.String(err.Error())
		a.x.log.Warn("a GitHub token could not be revoked yet", "error", a.receipt.RevokeError)
	}
	a.x.outcome.github = &a.receipt
}

// tokenFailed says what a failed mint means for the run.
func tokenFailed(err error) *api.Error {
	failure := &api.Error{Code: api.CodeGithubToken, Message: err.Error()}
	var e *githubauth.Error
	if errors.As(err, &e) {
		failure.Retryable = e.Retryable
		failure.Details = map[string]any{"reason": string(e.Reason)}
		if e.Status != 0 {
			failure.Details["status"] = e.Status
		}
		if e.RetryAfter > 0 {
			failure.Details["retryAfterMs"] = e.RetryAfter.Milliseconds()
		}
	}
	return failure
}

// keepFresh replaces the token in the sandbox before it expires, as long as the
// job runs. The returned function ends that.
func (x *execution) keepFresh(ctx context.Context, session *entrypoint.Session) (stop func()) {
	if x.github == nil || x.github.held[0].Lifetime <= 0 {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	var done sync.WaitGroup
	done.Go(func() { x.github.keepFresh(ctx, session) })
	return func() { cancel(); done.Wait() }
}

func (a *access) keepFresh(ctx context.Context, session *entrypoint.Session) {
	began, life := a.minted, a.held[0].Lifetime
	for {
		wait := life - min(freshBefore, life/4) - time.Since(began)
		for wake(ctx, max(wait, 0)) {
			now := time.Now()
			held, err := a.renew(ctx, session)
			if err == nil {
				began, life = now, held.Lifetime
				break
			}
			if ctx.Err() != nil {
				return
			}
			a.x.warn("the GitHub token could not be replaced by a fresh one yet: %v", err)
			wait = max(min(mintPause, life/10), minMintPause)
		}
		if ctx.Err() != nil {
			return
		}
	}
}

// wake waits and reports whether ctx still goes on.
func wake(ctx context.Context, wait time.Duration) bool {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}

// renew mints a fresh token and puts it into the sandbox. The one before stays
// valid until it expires or the run ends: what the agent has begun with it goes on.
func (a *access) renew(ctx context.Context, session *entrypoint.Session) (*tokens.Held, error) {
	held, err := a.take(ctx)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, updateTimeout)
	defer cancel()
	if err := session.Update(ctx, github.TokenFile(held.Value())); err != nil {
		return nil, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.receipt.Refreshed++
	a.setExpiry(held)
	a.x.log.Info("fresh GitHub token", "expires", held.Expires)
	return held, nil
}

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
