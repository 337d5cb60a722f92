package run

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

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
	// revokeTimeout bounds the revocation of a run's tokens, so that an executor that is
	// told to end can put the run's end on record; then the keeper goes on.
	revokeTimeout = 4 * time.Second
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
	a, grant := &access{x: x, minted: time.Now()}, x.plan.GitHub.Grant
	key, err := x.appKey()
	if err != nil {
		return tokenFailed(err)
	}
	held, err := a.take(ctx)
	if err != nil {
		return x.cause(ctx, tokenFailed(err))
	}
	a.receipt = api.GithubReceipt{
		Profile:      grant.Profile.Name,
		Owner:        grant.Owner,
		Repositories: slices.Clone(grant.Repositories),
		Permissions:  held.Permissions,
		Source:       x.GitHub.Source,
		Downscoped:   held.Downscoped,
		AppKey:       len(key) > 0,
	}
	a.setExpiry(held)
	a.note()
	a.given = agent.GitHub{
		Profile:  grant.Profile.Name,
		Access:   github.Access{Host: x.GitHub.Tokens.Hosts().Git, APIURL: x.GitHub.APIURL, Owner: grant.Owner, Repositories: grant.Repositories},
		Identity: a.identity(ctx, held.Token),
		Token:    held.Value(),
		Key:      key,
	}
	a.announce()
	x.github = a
	return nil
}

// appKey is the App's private key where the plan gives it to the run, else empty.
func (x *execution) appKey() ([]byte, error) {
	if !x.plan.GitHub.Key {
		return nil, nil
	}
	key, err := x.GitHub.Key()
	if err != nil {
		return nil, fmt.Errorf("read the App's private key: %w", err)
	}
	for line := range strings.Lines(string(key)) {
		if !strings.HasPrefix(line, "-----") {
			x.redactor.Learn(keyName, strings.TrimSpace(line))
		}
	}
	return key, nil
}

// note writes the receipt down as it is now. Where that fails the run goes on: it
// matters only to an executor that finds it after a crash.
func (a *access) note() {
	if err := a.x.entry.KeepGithub(a.receipt); err != nil {
		a.x.log.Error("the access to GitHub could not be recorded", "error", err)
	}
}

// announce puts on record what the run may do.
func (a *access) announce() {
	r := a.receipt
	a.x.log.Info("GitHub token", "profile", r.Profile, "owner", r.Owner, "repositories", r.Repositories, "permissions", r.Permissions,
		"downscoped", r.Downscoped, "appKey", r.AppKey, "runId", a.x.plan.Request.Opts.GithubAccess.RunID)
	if !r.Downscoped {
		a.x.warn("the run has the operator's static GitHub token, which is not narrowed to the profile %q and lives on after the run", r.Profile)
	}
	if r.AppKey {
		a.x.warn("the GitHub App's private key is in the sandbox, since profile and service allow it and the request asks for it")
	}
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
	errs := make([]error, len(a.held))
	var done sync.WaitGroup
	for i, h := range a.held {
		done.Go(func() { errs[i] = h.Revoke(ctx) })
	}
	done.Wait()
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
