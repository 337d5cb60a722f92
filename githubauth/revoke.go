package githubauth

import (
	"context"
	"net/http"
)

// Revoke ends a token of any App at the App's GitHub, at once for everybody who has
// it. A token that is not good any more is no error. It tries for 30 s at most; the
// error is an *Error.
func (a *App) Revoke(ctx context.Context, token string) error {
	const op = "revoke a GitHub token"
	if !isValue(token) {
		return &Error{Op: op, Reason: ReasonInvalidGrant, Problem: "it is not a token"}
	}
	ctx, cancel := context.WithTimeout(ctx, overallTimeout)
	defer cancel()
	got, err := do(ctx, a.plain, call{op: op, method: http.MethodDelete, path: "installation/token", token: token})
	switch status(err) {
	case http.StatusUnauthorized, http.StatusNotFound:
		return nil
	}
	if err == nil && got.status != http.StatusNoContent {
		return malformed(op, "GitHub answers 204 to that, and this was another answer: is the address of its API right?")
	}
	return err
}
