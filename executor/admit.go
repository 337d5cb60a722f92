package executor

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"sallyport/executor/api"
	"sallyport/executor/caller"
	"sallyport/executor/policy"
)

// admit finds who makes a call, and says why it may not be made: to strangers always the
// same. The request that it returns ends with its token; leave must be called after it.
func (e *Executor) admit(r *http.Request, to route) (_ *http.Request, leave func(), _ *api.Problem) {
	ctx, leave, err := e.callers.Enter(r.Context(), bearer(r))
	switch {
	case errors.Is(err, caller.ErrUnknown):
		return nil, nil, unauthorized("")
	case err != nil:
		return nil, nil, e.failed("a token could not be looked up", err)
	}
	by := caller.Of(ctx)
	if !e.Knows(by.Tenant) { // nor may anybody be in a tenant that is there no longer
		leave()
		return nil, nil, unauthorized("")
	}
	if lacks := by.Lacks(to.needs); lacks != 0 {
		leave()
		return nil, nil, forbidden(lacks)
	}
	r = r.WithContext(ctx)
	if !r.URL.Query().Has(tenantParameter) {
		return r, leave, nil
	}
	r, problem := lookElsewhere(r, by, to)
	if problem != nil {
		leave()
		return nil, nil, problem
	}
	return r, leave, nil
}

// tenantParameter names the tenant whose things a call is about, in the query.
const tenantParameter = "tenant"

// lookElsewhere has a call made for the tenant that its query names.
func lookElsewhere(r *http.Request, by caller.Caller, to route) (*http.Request, *api.Problem) {
	query := r.URL.Query()
	names := query[tenantParameter]
	switch {
	case len(names) > 1:
		return nil, badRequest("the query parameter tenant is given more than once")
	case names[0] != by.Tenant && !by.May(caller.Service):
		return nil, notFound("there is no such tenant")
	case to.needs&caller.Run != 0 && to.method == http.MethodPost && names[0] != by.Tenant:
		return nil, badRequest("a run is begun with a token of its tenant: leave out the query parameter tenant")
	}
	r = r.WithContext(caller.With(r.Context(), by.In(names[0])))
	query.Del(tenantParameter)
	u := new(url.URL)
	*u = *r.URL
	u.RawQuery = query.Encode()
	r.URL = u
	return r, nil
}

// bearer is the token that a request shows, empty for none.
func bearer(r *http.Request) string {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimSpace(token)
}

// unauthorized is the answer to who is nobody, and why, to who was somebody.
func unauthorized(why string) *api.Problem {
	if why == "" {
		why = "a bearer token is required: Authorization: Bearer <token>; sallyport token prints the operator's"
	}
	return api.NewProblem(http.StatusUnauthorized, api.CodeUnauthorized, why)
}

// forbidden is the answer to a known caller who lacks a right.
func forbidden(lacks caller.Rights) *api.Problem {
	p := api.NewProblem(http.StatusForbidden, api.CodeForbidden, fmt.Sprintf("the token does not have the right: %s", lacks))
	p.Details = map[string]any{"rights": (lacks &^ caller.Service).Words()}
	if lacks&caller.Service != 0 {
		p.Details["tenant"] = policy.Operator
	}
	return p
}

// tokenEnded is the answer to a call whose token is good no longer, nil while it is.
func tokenEnded(r *http.Request) *api.Problem {
	if why := caller.Ended(r.Context()); why != nil {
		return unauthorized(why.Error())
	}
	return nil
}
