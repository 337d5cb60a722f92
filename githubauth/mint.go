package githubauth

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"sallyport/githubauth/plain"
	"sallyport/githubauth/rest"
	"sallyport/githubauth/scope"
)

// A request is what GitHub is asked for. Both fields are always sent: it takes one
// that is missing for everything the installation has.
type request struct {
	Repositories []string          `json:"repositories"`
	Permissions  scope.Permissions `json:"permissions"`
}

// Mint has GitHub make a token for g, and returns it if it can do what g says and
// no more. It takes 30 s at most, and 10 s more where a token is to be revoked. The
// error is an *Error; no token is left behind then, except where GitHub's answer was
// lost on its way.
func (a *App) Mint(ctx context.Context, g scope.Grant) (Token, error) {
	op := "mint a GitHub token for " + plain.Line(g.Owner)
	if err := g.Check(); err != nil {
		return Token{}, &rest.Error{Op: op, Reason: rest.ReasonInvalidGrant, Problem: err.Error(), Cause: err}
	}
	caller := ctx
	ctx, cancel := context.WithTimeout(ctx, rest.Timeout)
	defer cancel()
	in, got, err := a.requestToken(ctx, op, g)
	if err != nil {
		a.discard(caller, salvage(got.Body))
		return Token{}, err
	}
	token, err := a.judge(op, g, in, got)
	if err != nil {
		a.forget(g.Owner) // it may have another name now
		a.discard(caller, salvage(got.Body))
		return Token{}, err
	}
	return token, nil
}

// requestToken asks for a token of the installation that is known, and where that
// has gone of the one that there is now.
func (a *App) requestToken(ctx context.Context, op string, g scope.Grant) (installation, rest.Answer, error) {
	in, err := a.installation(ctx, op, g.Owner)
	if err != nil {
		return in, rest.Answer{}, err
	}
	ask := func() (rest.Answer, error) {
		return a.do(ctx, rest.Call{Op: op, Method: http.MethodPost, Path: fmt.Sprintf("app/installations/%d/access_tokens", in.ID),
			Body: request{Repositories: g.Repositories, Permissions: g.Profile.Permissions},
			Lost: func(part []byte) { a.discard(ctx, salvage(part)) }})
	}
	got, err := ask()
	if rest.Absent(err) { // installed anew, or suspended
		if in, err = a.renewInstallation(ctx, op, g.Owner); err != nil {
			return in, rest.Answer{}, err
		}
		got, err = ask()
	}
	switch rest.Status(err) {
	case http.StatusNotFound, http.StatusForbidden, http.StatusUnprocessableEntity:
		err = a.explain(ctx, op, g, err)
	}
	return in, got, err
}

// explain finds out what an installation lacks that did not give a token.
func (a *App) explain(ctx context.Context, op string, g scope.Grant, err error) error {
	refused, ok := errors.AsType[*rest.Error](err)
	if !ok || refused.Reason != rest.ReasonNotPermitted {
		return err
	}
	in, err := a.renewInstallation(ctx, op, g.Owner)
	if err != nil {
		return refused
	}
	if problem := in.lacks(g); problem != "" {
		refused.Problem = problem
		return refused
	}
	refused.Problem += "; does the App's installation for " + g.Owner + " include the repositories that the run names?"
	return refused
}

// judge makes a Token of an answer that gives what g says.
func (a *App) judge(op string, g scope.Grant, in installation, got rest.Answer) (Token, error) {
	var m minted
	if err := rest.Decode(op, got.Body, &m); err != nil {
		return Token{}, err
	}
	now, err := http.ParseTime(got.Header.Get("Date"))
	if err != nil {
		now = a.clock.now()
	}
	switch {
	case !isValue(m.Token):
		return Token{}, rest.Malformed(op, "GitHub's answer has no token in it")
	case !m.ExpiresAt.After(now):
		return Token{}, rest.Malformed(op, "the token that GitHub gave says no time in the future until which it is good")
	}
	if err := m.compare(op, g); err != nil {
		return Token{}, err
	}
	token := NewToken(m.Token)
	token.Expires, token.Lifetime = m.ExpiresAt, m.ExpiresAt.Sub(now)
	token.Permissions, token.Owner, token.Repositories = m.Permissions, in.Account.Login, m.names()
	token.Downscoped = true
	return token, nil
}
