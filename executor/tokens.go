package executor

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"sallyport/executor/api"
	"sallyport/executor/caller"
	"sallyport/executor/plan"
)

const tokenExample = `{"principal": "ci", "rights": ["run", "read"]}`

// postToken makes a token. Its text is in this answer alone.
func (e *Executor) postToken(w http.ResponseWriter, r *http.Request, by caller.Caller) {
	body, p := readBody(w, r)
	if p != nil {
		writeProblem(w, p)
		return
	}
	req, p := plan.DecodeAs[api.TokenRequest](body, tokenExample)
	if p != nil {
		writeProblem(w, p)
		return
	}
	c, expires, p := e.judgeToken(by, req, time.Now())
	if p != nil {
		writeProblem(w, p)
		return
	}
	made, text, err := e.callers.Make(r.Context(), c, by.Principal, expires)
	switch {
	case errors.Is(err, caller.ErrTooMany):
		writeProblem(w, api.NewProblem(http.StatusUnprocessableEntity, api.CodeInvalidRequest, caller.ErrTooMany.Error()))
		return
	case err != nil:
		writeProblem(w, e.failed("a token could not be made", err))
		return
	}
	e.log.Info("token made", "token", made.ID, "tenant", made.Tenant, "principal", made.Principal, "rights", made.Rights.String(), "expires", made.Expires, "by", made.CreatedBy)
	answer := tokenInfo(made)
	answer.Token = text
	writeJSON(w, http.StatusCreated, answer)
}

// judgeToken says whose token is asked for, and when it expires.
func (e *Executor) judgeToken(by caller.Caller, req api.TokenRequest, now time.Time) (c caller.Caller, expires time.Time, _ *api.Problem) {
	wrong := func(field string, err error) *api.Problem {
		p := api.NewProblem(http.StatusUnprocessableEntity, api.CodeInvalidRequest, field+": "+err.Error())
		p.Details = map[string]any{"field": field}
		return p
	}
	if !e.Knows(by.Tenant) {
		return c, expires, wrong(tenantParameter, fmt.Errorf("there is no tenant %.64q; the file of profiles has them", by.Tenant))
	}
	if err := caller.CheckPrincipal(req.Principal); err != nil {
		return c, expires, wrong("principal", err)
	}
	rights, err := caller.ParseRights(req.Rights)
	if err != nil {
		return c, expires, wrong("rights", err)
	}
	if lacks := by.Lacks(rights); lacks != 0 {
		p := forbidden(lacks)
		p.Detail += ", so it cannot give it to another"
		p.Details["field"] = "rights"
		return c, expires, p
	}
	expires = now.Add(caller.DefaultLife)
	if req.ExpiresAt != "" {
		if expires, err = time.Parse(time.RFC3339, req.ExpiresAt); err != nil || !expires.After(now) || expires.After(now.Add(caller.MaxLife)) {
			return c, expires, wrong("expiresAt", fmt.Errorf("%.64q is not a time of RFC 3339 within the next %d days, such as %s",
				req.ExpiresAt, caller.MaxLife/(24*time.Hour), now.Add(caller.DefaultLife).UTC().Format(time.RFC3339)))
		}
	}
	return caller.Caller{Tenant: by.Tenant, Principal: req.Principal, Rights: rights}, expires, nil
}

func (e *Executor) getTokens(w http.ResponseWriter, r *http.Request, by caller.Caller) {
	list, err := e.callers.List(r.Context(), by)
	if err != nil {
		writeProblem(w, e.failed("the tokens could not be listed", err))
		return
	}
	answer := api.TokenList{Tokens: make([]api.Token, 0, len(list))}
	for _, t := range list {
		answer.Tokens = append(answer.Tokens, tokenInfo(t))
	}
	writeJSON(w, http.StatusOK, answer)
}

func (e *Executor) deleteToken(w http.ResponseWriter, r *http.Request, by caller.Caller) {
	// Also where it is the token of this very call, which then ends.
	revoked, err := e.callers.Revoke(context.WithoutCancel(r.Context()), by, r.PathValue("id"))
	switch {
	case errors.Is(err, caller.ErrUnknown):
		writeProblem(w, notFound("there is no such token"))
		return
	case err != nil:
		writeProblem(w, e.failed("a token could not be revoked", err))
		return
	}
	e.log.Info("token revoked", "token", revoked.ID, "tenant", revoked.Tenant, "principal", revoked.Principal, "by", by.Principal)
	writeJSON(w, http.StatusOK, tokenInfo(revoked))
}

func tokenInfo(t caller.Token) api.Token {
	return api.Token{
		ID: t.ID, Tenant: t.Tenant, Principal: t.Principal, Rights: t.Rights.Words(), CreatedAt: t.Created.UTC(), CreatedBy: t.CreatedBy,
		ExpiresAt: t.Expires.UTC(), RevokedAt: utc(t.Revoked), LastUsedAt: utc(t.Used),
	}
}

// utc leaves a zero time zero, so that JSON leaves it out.
func utc(t time.Time) time.Time {
	if t.IsZero() {
		return t
	}
	return t.UTC()
}

// failed is the problem of what went wrong with us, about which the log has more.
func (e *Executor) failed(what string, err error) *api.Problem {
	e.log.Error("the database could not be used", "for", what, "error", err)
	return api.NewProblem(http.StatusInternalServerError, api.CodeInternal, what+"; the executor's log says why")
}
