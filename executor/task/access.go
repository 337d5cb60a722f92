package task

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
	"sallyport/executor/place"
	"sallyport/executor/plan"
	"sallyport/executor/tokens"
	"sallyport/githubauth"
	"sallyport/githubauth/rest"
)

// A GitHub gives tasks their access to GitHub.
type GitHub struct {
	Tokens *tokens.Keeper
	// Host is where git finds repositories, such as github.com.
	Host string
	// APIURL is the base of the REST API.
	APIURL string
	// Source is what api.GithubReceipt says of the tokens.
	Source string
	// Key reads the App's private key for the run that may have it; nil where none may.
	Key func() ([]byte, error)
}

const (
	identityTimeout = 10 * time.Second
	// revokeTimeout bounds the revocation of a task's tokens, so that an executor that is
	// told to end can put the task's end on record; then the keeper goes on.
	revokeTimeout = 4 * time.Second
	// keyName and tokenName are what is shown instead of either.
	keyName   = "GITHUB_APP_PRIVATE_KEY"
	tokenName = "GITHUB_TOKEN"
)

// An access is a task's access to GitHub.
type access struct {
	*GitHub
	plan  *plan.GitHub
	rec   *recorder
	given agent.GitHub // with the first token
	// minted is when that was asked for.
	minted time.Time

	mu      sync.Mutex // guards what follows
	held    []*tokens.Held
	receipt api.GithubReceipt
}

// open mints a task's token. Without one nothing is started.
func (g *GitHub) open(ctx context.Context, p *plan.Plan, rec *recorder) (*access, *api.Error) {
	a, grant := &access{GitHub: g, plan: p.GitHub, rec: rec, minted: time.Now()}, p.GitHub.Grant
	key, err := a.appKey()
	if err != nil {
		return nil, tokenFailed(err)
	}
	held, err := a.take(ctx)
	if err != nil {
		return nil, place.Cause(ctx, tokenFailed(err))
	}
	a.receipt = api.GithubReceipt{
		Profile:      grant.Profile.Name,
		Owner:        grant.Owner,
		Repositories: slices.Clone(grant.Repositories),
		Permissions:  held.Permissions,
		Source:       g.Source,
		Downscoped:   held.Downscoped,
		AppKey:       len(key) > 0,
	}
	a.setExpiry(held)
	a.writeDown()
	a.given = agent.GitHub{
		Profile:  grant.Profile.Name,
		Access:   github.Access{Host: g.Host, APIURL: g.APIURL, Owner: grant.Owner, Repositories: grant.Repositories},
		Identity: a.identity(ctx, held.Token),
		Token:    held.Value(),
		Key:      key,
	}
	a.announce(p.Request.Opts.GithubAccess.RunID)
	return a, nil
}

// appKey is the App's private key where the plan gives it to the task, else empty.
func (a *access) appKey() ([]byte, error) {
	if !a.plan.Key {
		return nil, nil
	}
	key, err := a.Key()
	if err != nil {
		return nil, fmt.Errorf("read the App's private key: %w", err)
	}
	for line := range strings.Lines(string(key)) {
		if !strings.HasPrefix(line, "-----") {
			a.rec.redactor.Learn(keyName, strings.TrimSpace(line))
		}
	}
	return key, nil
}

// writeDown keeps the receipt as it is now. Where that fails the task goes on: it
// matters only to an executor that finds it after a crash.
func (a *access) writeDown() {
	if err := a.rec.entry.KeepGithub(a.receipt); err != nil {
		a.rec.log.Error("the access to GitHub could not be recorded", "error", err)
	}
}

// noteCheckout puts into the receipt what came of the checkout, and which commit.
func (a *access) noteCheckout(end, commit string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.receipt.Checkout, a.receipt.Commit = end, commit
	a.writeDown()
}

// announce puts on record what the task may do. runID is the caller's name for it.
func (a *access) announce(runID string) {
	r := a.receipt
	a.rec.log.Info("GitHub token", "profile", r.Profile, "owner", r.Owner, "repositories", r.Repositories, "permissions", r.Permissions,
		"downscoped", r.Downscoped, "appKey", r.AppKey, "runId", runID)
	if !r.Downscoped {
		a.rec.warn("the run has the operator's static GitHub token, which is not narrowed to the profile %q and lives on after the run", r.Profile)
	}
	if r.AppKey {
		a.rec.warn("the GitHub App's private key is in the sandbox, since profile and service allow it and the request asks for it")
	}
}

// take mints a token, of which nothing that is printed tells from now on.
func (a *access) take(ctx context.Context) (*tokens.Held, error) {
	held, err := a.Tokens.Take(ctx, a.rec.entry.Meta.ID, a.plan.Grant)
	if err != nil {
		return nil, err
	}
	a.rec.redactor.Learn(tokenName, held.Value())
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

// identity is whom the task commits as. GitHub's not telling is no reason to fail.
func (a *access) identity(ctx context.Context, t githubauth.Token) github.Identity {
	ctx, cancel := context.WithTimeout(ctx, identityTimeout)
	defer cancel()
	id, err := a.Tokens.Identity(ctx, t)
	if err != nil {
		a.rec.warn("the GitHub App's account is not known, so commits are by nobody in particular: %v", err)
		return github.Identity{}
	}
	return github.Identity{Name: id.Name, Email: id.Email}
}

// close revokes the task's tokens and returns the receipt. The sandbox is gone by now.
func (a *access) close() *api.GithubReceipt {
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
		a.receipt.RevokeError = a.rec.redactor.String(err.Error())
		a.rec.log.Warn("a GitHub token could not be revoked yet", "error", a.receipt.RevokeError)
	}
	return &a.receipt
}

// tokenFailed says what a failed mint means for the run.
func tokenFailed(err error) *api.Error {
	failure := &api.Error{Code: api.CodeGithubToken, Message: err.Error()}
	var e *rest.Error
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
