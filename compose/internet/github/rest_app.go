package github

import (
	"maps"
	"net/http"
	"slices"
	"strconv"
)

// appRoutes are what is not below a repository.
var appRoutes = []route{
	{pattern: "GET /app", who: asApp, serve: (*call).getApp},
	{pattern: "GET /app/installations", who: asApp, serve: (*call).listInstallations},
	{pattern: "GET /app/installations/{id}", who: asApp, serve: (*call).getInstallation},
	{pattern: "POST /app/installations/{id}/access_tokens", who: asApp, serve: (*call).createToken},
	{pattern: "GET /orgs/{org}/installation", who: asApp, serve: (*call).findInstallation},
	{pattern: "GET /users/{user}/installation", who: asApp, serve: (*call).findInstallation},
	{pattern: "GET /repos/{owner}/{repo}/installation", who: asApp, serve: (*call).findInstallation},

	{pattern: "DELETE /installation/token", who: asToken, serve: (*call).revokeToken},
	{pattern: "GET /installation/repositories", who: asToken, serve: (*call).listAccessible},

	{pattern: "GET /users/{user}", serve: (*call).getUser},
	{pattern: "GET /orgs/{user}", serve: (*call).getUser},
	{pattern: "GET /user", who: signedIn},
	{pattern: "GET /user/repos", who: signedIn},
	{pattern: "POST /user/repos", who: signedIn},
	{pattern: "GET /rate_limit", serve: (*call).getLimits},
	{pattern: "GET /{$}", serve: func(c *call) (int, any, error) {
		return http.StatusOK, object{"current_user_url": apiURL("user"), "rate_limit_url": apiURL("rate_limit")}, nil
	}},
	{pattern: "GET /meta", serve: func(*call) (int, any, error) {
		return http.StatusOK, object{"verifiable_password_authentication": false, "installed_version": enterpriseVersion}, nil
	}},
	{pattern: "POST /graphql", serve: (*call).graphql},
}

func (c *call) getApp() (int, any, error) {
	return http.StatusOK, object{
		"id": AppID, "client_id": ClientID, "slug": Slug, "node_id": nodeID("A", AppID), "name": "Sallyport demo",
		"owner": viewAccount(c.world.account("acme")), "description": "", "events": []any{}, "permissions": appPermissions,
		"external_url": "https://" + Host, "html_url": "https://" + Host + "/apps/" + Slug, "installations_count": len(c.installs),
		"created_at": stamp(seedTime), "updated_at": stamp(seedTime),
	}, nil
}

func viewInstallation(in *installation) any {
	return object{
		"id": in.id, "account": viewAccount(in.account), "app_id": AppID, "app_slug": Slug, "client_id": ClientID,
		"target_id": in.account.id, "target_type": in.account.kind, "repository_selection": selection(in.repos),
		"permissions": in.permissions, "events": []any{}, "suspended_at": nil, "suspended_by": nil,
		"access_tokens_url": apiURL("app/installations/%d/access_tokens", in.id),
		"repositories_url":  apiURL("installation/repositories"), "html_url": "https://" + Host + "/settings/installations/" + strconv.FormatInt(in.id, 10),
		"created_at": stamp(in.created), "updated_at": stamp(in.created),
	}
}

func (c *call) listInstallations() (int, any, error) {
	return http.StatusOK, each(page(c, c.installs), viewInstallation), nil
}

// installation finds the one that the path names by its number.
func (c *call) installation() (*installation, error) {
	for _, in := range c.installs {
		if strconv.FormatInt(in.id, 10) == c.r.PathValue("id") {
			return in, nil
		}
	}
	return nil, notFound()
}

func (c *call) getInstallation() (int, any, error) {
	in, err := c.installation()
	if err != nil {
		return 0, nil, err
	}
	return http.StatusOK, viewInstallation(in), nil
}

// findInstallation finds it by an organization, a user or a repository that it covers.
func (c *call) findInstallation() (int, any, error) {
	for _, in := range c.installs {
		switch owner := c.world.account(c.r.PathValue("owner")); {
		case owner == in.account && slices.Contains(c.repositories(in), c.world.repo(owner.login, c.r.PathValue("repo"))),
			c.r.PathValue("org") != "" && c.world.account(c.r.PathValue("org")) == in.account && in.account.kind == organization,
			c.r.PathValue("user") != "" && c.world.account(c.r.PathValue("user")) == in.account:
			return http.StatusOK, viewInstallation(in), nil
		}
	}
	return 0, nil, notFound()
}

func (c *call) createToken() (int, any, error) {
	in, err := c.installation()
	if err != nil {
		return 0, nil, err
	}
	var req mintRequest
	if err := c.read(&req); err != nil {
		return 0, nil, err
	}
	value, t, err := c.mint(in, req)
	if err != nil {
		return 0, nil, err
	}
	answer := object{"token": value, "expires_at": stamp(t.Expires)}
	if c.faults.Scope == "unsaid" {
		return http.StatusCreated, answer, nil
	}
	answer["permissions"], answer["repository_selection"] = maps.Clone(t.Permissions), t.Selection
	if len(req.Repositories)+len(req.RepositoryIDs) > 0 { // only then it lists them
		answer["repositories"] = each(t.repos, func(r *repository) any { return viewRepo(r, t) })
	}
	return http.StatusCreated, answer, nil
}

func (c *call) revokeToken() (int, any, error) {
	now := c.now()
	c.caller.token.Revoked, c.caller.token.RevokedBy = &now, c.caller.agent
	return http.StatusNoContent, nil, nil
}

func (c *call) listAccessible() (int, any, error) {
	t := c.caller.token
	return http.StatusOK, object{
		"total_count": len(t.repos), "repository_selection": t.Selection,
		"repositories": each(page(c, t.repos), func(r *repository) any { return viewRepo(r, t) }),
	}, nil
}

func (c *call) getUser() (int, any, error) {
	a := c.world.account(c.r.PathValue("user"))
	if a == nil {
		return 0, nil, notFound()
	}
	return http.StatusOK, viewAccount(a), nil
}

func (c *call) getLimits() (int, any, error) {
	limit, used := rateNobody, 1
	if t := c.caller.token; t != nil {
		limit, used = rateToken, t.used
	}
	one := object{"limit": limit, "used": used, "remaining": max(limit-used, 0), "reset": c.now().Unix() + 3600}
	return http.StatusOK, object{"resources": object{"core": one, "graphql": one}, "rate": one}, nil
}
