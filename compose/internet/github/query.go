package github

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// fields are a node's.
type fields = map[string]any

// queryFields are the roots of a query.
func (c *call) queryFields() fields {
	return fields{
		"viewer":          c.account(c.author(c.caller), "User"), // GitHub shows a bot as this here
		"repository":      fieldFunc(c.findRepo),
		"repositoryOwner": fieldFunc(c.findOwner),
		"organization":    fieldFunc(c.findOwner),
		"user":            fieldFunc(c.findOwner),
		"node":            fieldFunc(func(args map[string]any) (any, error) { return c.find(text(args, "id")) }),
		"rateLimit": &node{"RateLimit", fields{"limit": rateToken, "cost": 1, "remaining": rateToken - c.caller.token.used,
			"used": c.caller.token.used, "resetAt": stamp(c.now().Add(time.Hour))}},
	}
}

// text is an argument that is a string; "" without it.
func text(args map[string]any, name string) string {
	s, _ := args[name].(string)
	return s
}

func (c *call) findRepo(args map[string]any) (any, error) {
	owner, name := text(args, "owner"), text(args, "name")
	r := c.world.repo(owner, name)
	if c.caller.check(r, needs("metadata=read")) != nil {
		return nil, &apiError{status: 404, kind: "NOT_FOUND",
			message: fmt.Sprintf("Could not resolve to a Repository with the name '%s/%s'.", owner, name)}
	}
	return c.repository(r), nil
}

func (c *call) findOwner(args map[string]any) (any, error) {
	a := c.world.account(text(args, "login"))
	if a == nil {
		return nil, &apiError{status: 404, kind: "NOT_FOUND", message: "Could not resolve to a User with the login of '" + text(args, "login") + "'."}
	}
	return c.account(a, ""), nil
}

// thing finds what has a node id: a *repository, *issue, *label or *account that the
// caller may know of.
func (c *call) thing(id string) (any, error) {
	for _, r := range c.world.repos {
		if c.caller.check(r, needs("metadata=read")) != nil {
			continue
		}
		if nodeID("R", r.id) == id {
			return r, nil
		}
		for _, l := range r.labels {
			if nodeID("LA", l.id) == id {
				return l, nil
			}
		}
		for _, i := range r.issues {
			if i.nodeID() == id {
				return i, nil
			}
		}
	}
	for _, a := range c.world.accounts {
		if nodeID(a.kind[:1], a.id) == id {
			return a, nil
		}
	}
	return nil, &apiError{status: 404, kind: "NOT_FOUND", message: "Could not resolve to a node with the global id of '" + id + "'"}
}

func (c *call) find(id string) (any, error) {
	found, err := c.thing(id)
	switch v := found.(type) {
	case *repository:
		return c.repository(v), nil
	case *issue:
		if err := c.mayRead(v); err != nil {
			return nil, err
		}
		return c.issueOrPull(v), nil
	case *label:
		return labelNode(v), nil
	case *account:
		return c.account(v, ""), nil
	}
	return nil, err
}

// account renders one; as is its type where GitHub calls it another.
func (c *call) account(a *account, as string) *node {
	if a == nil {
		return nil
	}
	if as == "" {
		as = a.kind
	}
	login := strings.TrimSuffix(a.login, "[bot]")
	if as == user {
		login = a.login
	}
	return &node{as, fields{
		"id": nodeID(a.kind[:1], a.id), "databaseId": a.id, "login": login, "name": a.login,
		"url": "https://" + Host + "/" + login, "resourcePath": "/" + login,
	}}
}

func labelNode(l *label) *node {
	return &node{"Label", fields{"id": nodeID("LA", l.id), "name": l.name, "color": l.color, "description": l.description}}
}

func nodes[T any](list []T, view func(T) *node) []*node {
	out := make([]*node, 0, len(list))
	for _, one := range list {
		out = append(out, view(one))
	}
	return out
}

// guarded is a field that takes a permission of the repository.
func (c *call) guarded(r *repository, what string, find fieldFunc) fieldFunc {
	return func(args map[string]any) (any, error) {
		if err := c.caller.check(r, needs(what)); err != nil {
			return nil, err
		}
		return find(args)
	}
}

// viewerPermission is GitHub's one word for what a token may do.
func viewerPermission(t *token, r *repository) string {
	switch {
	case !t.covers(r):
		return "READ"
	case t.Permissions.has("administration", "write"):
		return "ADMIN"
	case t.Permissions.has("contents", "write"):
		return "WRITE"
	}
	return "READ"
}

func (c *call) repository(r *repository) *node {
	page := "https://" + Host + "/" + r.fullName()
	return &node{"Repository", fields{
		"id": nodeID("R", r.id), "databaseId": r.id, "name": r.name, "nameWithOwner": r.fullName(), "owner": c.account(r.owner, ""),
		"description": r.description, "homepageUrl": r.homepage, "url": page, "sshUrl": "git@" + Host + ":" + r.fullName() + ".git",
		"resourcePath": "/" + r.fullName(), "createdAt": stamp(r.created), "pushedAt": stamp(r.pushed), "updatedAt": stamp(r.pushed),
		"hasIssuesEnabled": r.hasIssues, "hasWikiEnabled": r.hasWiki, "isBlankIssuesEnabled": true, "isArchived": r.archived,
		"isPrivate": r.private, "visibility": strings.ToUpper(r.visibility()), "isInOrganization": r.owner.kind == organization,
		"mergeCommitAllowed": true, "squashMergeAllowed": true, "viewerDefaultMergeMethod": "MERGE", "viewerSubscription": "UNSUBSCRIBED",
		"deleteBranchOnMerge": r.deleteMerged, "viewerPermission": viewerPermission(c.caller.token, r),
		"viewerCanAdminister": viewerPermission(c.caller.token, r) == "ADMIN",
		"defaultBranchRef":    fieldFunc(func(map[string]any) (any, error) { return c.refNode(r, "refs/heads/"+r.defaultBranch), nil }),
		"ref": c.guarded(r, "contents=read", func(args map[string]any) (any, error) {
			return c.refNode(r, c.qualified(r, text(args, "qualifiedName"))), nil
		}),
		"refs":   c.guarded(r, "contents=read", func(args map[string]any) (any, error) { return c.refs(r, args) }),
		"object": c.guarded(r, "contents=read", func(args map[string]any) (any, error) { return c.gitObject(r, args) }),
		"issue": c.guarded(r, "issues=read", func(args map[string]any) (any, error) {
			return c.numbered(r, args, "an Issue", func(i *issue) bool { return i.pull == nil })
		}),
		"pullRequest": c.guarded(r, "pull_requests=read", func(args map[string]any) (any, error) {
			return c.numbered(r, args, "a PullRequest", func(i *issue) bool { return i.pull != nil })
		}),
		"issueOrPullRequest": c.guarded(r, readEither, func(args map[string]any) (any, error) {
			return c.numbered(r, args, "an issue or pull request", func(*issue) bool { return true })
		}),
		"issues":       c.guarded(r, "issues=read", func(args map[string]any) (any, error) { return c.issues(r, args) }),
		"pullRequests": c.guarded(r, "pull_requests=read", func(args map[string]any) (any, error) { return c.pulls(r, args) }),
		"labels":       connect("LabelConnection", nodes(r.labels, labelNode)),
		"releases": c.guarded(r, "contents=read", func(args map[string]any) (any, error) {
			return connect("ReleaseConnection", nodes(newest(r.releases), func(one *release) *node { return releaseNode(r, one) }))(args)
		}),
		"latestRelease": c.guarded(r, "contents=read", func(map[string]any) (any, error) {
			for _, one := range newest(r.releases) {
				if !one.draft {
					return releaseNode(r, one), nil
				}
			}
			return nil, nil
		}),
	}}
}

func releaseNode(r *repository, one *release) *node {
	return &node{"Release", fields{
		"id": nodeID("RE", one.id), "databaseId": one.id, "name": one.name, "tagName": one.tag, "description": one.body,
		"url":     fmt.Sprintf("https://%s/%s/releases/tag/%s", Host, r.fullName(), one.tag),
		"isDraft": one.draft, "isPrerelease": one.prerelease, "createdAt": stamp(one.created), "publishedAt": stamp(one.created),
	}}
}

func (c *call) numbered(r *repository, args map[string]any, what string, fits func(*issue) bool) (any, error) {
	n, _ := number(args["number"])
	i := r.issue(n)
	if i == nil || !fits(i) {
		return nil, &apiError{status: 404, kind: "NOT_FOUND", message: fmt.Sprintf("Could not resolve to %s with the number of %d.", what, n)}
	}
	if err := c.mayRead(i); err != nil {
		return nil, err
	}
	return c.issueOrPull(i), nil
}

// oneOf says whether a filter such as states lets the value pass.
func oneOf(filter any, value string) bool {
	list, ok := filter.([]any)
	if !ok {
		one, ok := filter.(string) // GraphQL takes one value for a list of it
		return !ok || one == value
	}
	return slices.Contains(list, any(value))
}

func (c *call) issues(r *repository, args map[string]any) (any, error) {
	filter, _ := args["filterBy"].(map[string]any)
	var found []*node
	for _, i := range newest(r.issues) {
		by := text(filter, "createdBy")
		if i.pull == nil && oneOf(args["states"], i.state()) && oneOf(filter["states"], i.state()) && (by == "" || by == i.author.login) {
			found = append(found, c.issueOrPull(i))
		}
	}
	return connect("IssueConnection", found)(args)
}

func (c *call) pulls(r *repository, args map[string]any) (any, error) {
	head, base := text(args, "headRefName"), text(args, "baseRefName")
	var found []*node
	for _, i := range newest(r.issues) {
		if i.pull != nil && oneOf(args["states"], i.state()) && (head == "" || head == i.pull.head) && (base == "" || base == i.pull.base) {
			found = append(found, c.issueOrPull(i))
		}
	}
	return connect("PullRequestConnection", found)(args)
}
