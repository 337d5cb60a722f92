package github

import (
	"fmt"
	"strings"
)

// issueOrPull renders an issue as its type has it.
func (c *call) issueOrPull(i *issue) *node {
	me := c.author(c.caller)
	f := fields{
		"id": i.nodeID(), "databaseId": i.id, "number": i.number, "title": i.title, "body": i.body, "url": i.url(),
		"resourcePath": strings.TrimPrefix(i.url(), "https://"+Host), "state": i.state(), "closed": i.state() != "OPEN",
		"closedAt": maybe(i.closed), "createdAt": stamp(i.created), "updatedAt": stamp(i.updated), "author": c.account(i.author, ""),
		"authorAssociation": "NONE", "viewerDidAuthor": i.author == me, "repository": c.repository(i.repo),
		"assignees":      connect("UserConnection", nodes(i.assignees, func(a *account) *node { return c.account(a, user) })),
		"assignedActors": connect("AssigneeConnection", nodes(i.assignees, func(a *account) *node { return c.account(a, "") })),
		"labels":         connect("LabelConnection", nodes(i.labels, labelNode)),
		"comments":       connect("IssueCommentConnection", nodes(i.comments, c.commentNode)),
		"reactionGroups": []*node{},
	}
	if i.pull == nil {
		if f["stateReason"] = nil; i.reason != "" {
			f["stateReason"] = strings.ToUpper(i.reason)
		}
		return &node{"Issue", f}
	}
	c.pullFields(i, f)
	return &node{"PullRequest", f}
}

func (c *call) commentNode(one *comment) *node {
	return &node{"IssueComment", fields{
		"id": nodeID("IC", one.id), "databaseId": one.id, "author": c.account(one.author, ""), "authorAssociation": "NONE", "body": one.body,
		"createdAt": stamp(one.created), "updatedAt": stamp(one.created), "url": one.url(), "viewerDidAuthor": one.author == c.author(c.caller),
		"reactionGroups": []*node{},
	}}
}

func (c *call) reviewNode(one *review) *node {
	r := one.issue.repo
	return &node{"PullRequestReview", fields{
		"id": nodeID("PRR", one.id), "author": c.account(one.author, ""), "authorAssociation": "NONE", "body": one.body, "state": one.state,
		"submittedAt": stamp(one.created), "createdAt": stamp(one.created), "url": one.url(), "reactionGroups": []*node{},
		"commit": fieldFunc(func(map[string]any) (any, error) { return c.commitNode(r, one.commit) }),
	}}
}

// decision sums up the reviews: the last word of each reviewer counts.
func (i *issue) decision() (decision any, latest []*review) {
	last := map[*account]*review{}
	for _, r := range i.pull.reviews {
		if last[r.author] == nil || r.state != "COMMENTED" {
			last[r.author] = r
		}
	}
	for _, r := range i.pull.reviews {
		if last[r.author] != r {
			continue
		}
		latest = append(latest, r)
		if r.state == "CHANGES_REQUESTED" || decision == nil && r.state == "APPROVED" {
			decision = r.state
		}
	}
	return decision, latest
}

// lazily finds a value only where the query asks for it.
func lazily(find func() (any, error)) fieldFunc {
	return func(map[string]any) (any, error) { return find() }
}

// pullFields adds what a pull request has beyond an issue.
func (c *call) pullFields(i *issue, f fields) {
	p, r := i.pull, i.repo
	decision, latest := i.decision()
	for name, value := range (fields{
		"baseRefName": p.base, "baseRefOid": p.baseSHA, "headRefName": p.head, "headRefOid": p.headSHA, "isDraft": p.draft,
		"headRepository": c.repository(r), "baseRepository": c.repository(r), "headRepositoryOwner": c.account(r.owner, ""),
		"merged": p.merged != nil, "mergedAt": maybe(p.merged), "mergedBy": c.account(p.mergedBy, ""), "reviewDecision": decision,
		"baseRef": lazily(func() (any, error) { return c.refNode(r, "refs/heads/"+p.base), nil }),
		"headRef": lazily(func() (any, error) { return c.refNode(r, "refs/heads/"+p.head), nil }),
		"mergeCommit": lazily(func() (any, error) {
			if p.mergeCommit == "" {
				return nil, nil
			}
			return c.commitNode(r, p.mergeCommit)
		}),
		"mergeable":               lazily(func() (any, error) { return c.mergeable(i, "MERGEABLE", "CONFLICTING"), nil }),
		"mergeStateStatus":        lazily(func() (any, error) { return c.mergeable(i, "CLEAN", "DIRTY"), nil }),
		"reviews":                 connect("PullRequestReviewConnection", nodes(p.reviews, c.reviewNode)),
		"latestReviews":           connect("PullRequestReviewConnection", nodes(latest, c.reviewNode)),
		"viewerMergeHeadlineText": fmt.Sprintf("Merge pull request #%d from %s/%s", i.number, r.owner.login, p.head),
		"viewerMergeBodyText":     i.title,
		"additions":               lazily(func() (any, error) { add, _, _, err := c.changed(i); return add, err }),
		"deletions":               lazily(func() (any, error) { _, drop, _, err := c.changed(i); return drop, err }),
		"changedFiles":            lazily(func() (any, error) { _, _, list, err := c.changed(i); return len(list), err }),
		"files": fieldFunc(func(args map[string]any) (any, error) {
			_, _, list, err := c.changed(i)
			if err != nil {
				return nil, err
			}
			return connect("PullRequestChangedFileConnection", list)(args)
		}),
		"commits": fieldFunc(func(args map[string]any) (any, error) {
			list, err := r.git.commits(c.ctx, "--reverse", p.baseSHA+".."+p.headSHA, "--")
			if err != nil {
				return nil, err
			}
			return connect("PullRequestCommitConnection", nodes(list, func(one commitInfo) *node {
				return &node{"PullRequestCommit", fields{"id": "PRC_" + one.sha, "commit": commitNode(r, one)}}
			}))(args)
		}),
	}) {
		f[name] = value
	}
}

func (c *call) mergeable(i *issue, yes, no string) string {
	if i.state() != "OPEN" {
		return "UNKNOWN"
	}
	if _, ok := i.repo.git.mergedTree(c.ctx, i.pull.baseSHA, i.pull.headSHA); ok {
		return yes
	}
	return no
}

// changed sums up the files that a pull request changes.
func (c *call) changed(i *issue) (add, drop int, files []*node, err error) {
	list, err := i.repo.git.diff(c.ctx, i.pull.baseSHA, i.pull.headSHA)
	for _, f := range list {
		add, drop = add+f.add, drop+f.drop
		files = append(files, &node{"PullRequestChangedFile", fields{
			"path": f.path, "additions": f.add, "deletions": f.drop, "changeType": strings.ToUpper(f.status),
		}})
	}
	return add, drop, files, err
}
