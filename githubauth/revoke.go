package githubauth

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"time"

	"sallyport/githubauth/rest"
)

// Revoke ends a token of any App at the App's GitHub, at once for everybody who has
// it. A token that is not good any more is no error. It tries for 30 s at most; the
// error is an *Error.
func (a *App) Revoke(ctx context.Context, token string) error {
	const op = "revoke a GitHub token"
	if !isValue(token) {
		return &rest.Error{Op: op, Reason: rest.ReasonInvalidGrant, Problem: "it is not a token"}
	}
	ctx, cancel := context.WithTimeout(ctx, rest.Timeout)
	defer cancel()
	got, err := a.plain.Do(ctx, rest.Call{Op: op, Method: http.MethodDelete, Path: "installation/token", Token: token})
	switch rest.Status(err) {
	case http.StatusUnauthorized, http.StatusNotFound:
		return nil
	}
	if err == nil && got.Status != http.StatusNoContent {
		return rest.Malformed(op, "GitHub answers 204 to that, and this was another answer: is the address of its API right?")
	}
	return err
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
