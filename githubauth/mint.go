package githubauth

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"
)

// A request is what GitHub is asked for. Both fields are always sent: it takes one
// that is missing for everything the installation has.
type request struct {
	Repositories []string    `json:"repositories"`
	Permissions  Permissions `json:"permissions"`
}

// Mint has GitHub make a token for g, and returns it if it can do what g says and
// no more. It takes 30 s at most, and 10 s more where a token is to be revoked. The
// error is an *Error; no token is left behind then, except where GitHub's answer was
// lost on its way.
func (a *App) Mint(ctx context.Context, g Grant) (Token, error) {
	op := "mint a GitHub token for " + clean(g.Owner)
	if err := g.check(); err != nil {
		return Token{}, &Error{Op: op, Reason: ReasonInvalidGrant, Problem: err.Error(), err: err}
	}
	caller := ctx
	ctx, cancel := context.WithTimeout(ctx, overallTimeout)
	defer cancel()
	in, got, err := a.requestToken(ctx, op, g)
	if err != nil {
		a.discard(caller, salvage(got.body))
		return Token{}, err
	}
	token, err := a.judge(op, g, in, got)
	if err != nil {
		a.forget(g.Owner) // it may have another name now
		a.discard(caller, salvage(got.body))
		return Token{}, err
	}
	return token, nil
}

// requestToken asks for a token of the installation that is known, and where that
// has gone of the one that there is now.
func (a *App) requestToken(ctx context.Context, op string, g Grant) (installation, answer, error) {
	in, err := a.installation(ctx, op, g.Owner, false)
	if err != nil {
		return in, answer{}, err
	}
	ask := func() (answer, error) {
		return a.do(ctx, call{op: op, method: http.MethodPost, path: fmt.Sprintf("app/installations/%d/access_tokens", in.ID),
			body: request{Repositories: g.Repositories, Permissions: g.Profile.Permissions},
			lost: func(part []byte) { a.discard(ctx, salvage(part)) }})
	}
	got, err := ask()
	if absent(err) { // installed anew, or suspended
		if in, err = a.installation(ctx, op, g.Owner, true); err != nil {
			return in, answer{}, err
		}
		got, err = ask()
	}
	switch status(err) {
	case http.StatusNotFound, http.StatusForbidden, http.StatusUnprocessableEntity:
		err = a.explain(ctx, op, g, err)
	}
	return in, got, err
}

// explain finds out what an installation lacks that did not give a token.
func (a *App) explain(ctx context.Context, op string, g Grant, err error) error {
	refused, ok := errors.AsType[*Error](err)
	if !ok || refused.Reason != ReasonNotPermitted {
		return err
	}
	in, err := a.installation(ctx, op, g.Owner, true)
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

// isValue reports whether s can be a credential: it goes into header fields and
// lines of text. GitHub's are between 40 and some 600 characters.
func isValue(s string) bool {
	return 8 <= len(s) && len(s) <= 4096 && strings.IndexFunc(s, func(r rune) bool { return r < '!' || r > '~' }) < 0
}

// judge makes a Token of an answer that gives what g says.
func (a *App) judge(op string, g Grant, in installation, got answer) (Token, error) {
	var m minted
	if err := decode(op, got.body, &m); err != nil {
		return Token{}, err
	}
	now, err := http.ParseTime(got.header.Get("Date"))
	if err != nil {
		now = a.clock.now()
	}
	switch {
	case !isValue(m.Token):
		return Token{}, malformed(op, "GitHub's answer has no token in it")
	case !m.ExpiresAt.After(now):
		return Token{}, malformed(op, "the token that GitHub gave says no time in the future until which it is good")
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

// salvage finds the token in an answer that may be cut or otherwise wrong, so that
// it can be revoked. It is "" where there is none.
func salvage(body []byte) string {
	d := json.NewDecoder(bytes.NewReader(body))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return ""
	}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return ""
		}
		var value any
		if err := d.Decode(&value); err != nil {
			return ""
		}
		if s, ok := value.(string); ok && key == "token" && isValue(s) {
			return s
		}
	}
	return ""
}

// discardTimeout bounds the revocation of a token that nobody gets.
const discardTimeout = 10 * time.Second

// discard revokes a token that is not handed out, also where the caller has gone.
func (a *App) discard(ctx context.Context, token string) {
	if token == "" {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), discardTimeout)
	defer cancel()
	if err := a.Revoke(ctx, token); err != nil {
		a.log.ErrorContext(ctx, "a token that was refused could not be revoked; it lives until it expires", "error", err)
	}
}
