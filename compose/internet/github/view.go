package github

import (
	"fmt"
	"strings"
	"time"
)

// object is a JSON object.
type object = map[string]any

// stamp is a time as GitHub writes it.
func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

func maybe(t *time.Time) any {
	if t == nil {
		return nil
	}
	return stamp(*t)
}

// nodeID is what GraphQL knows a thing by.
func nodeID(prefix string, id int64) string { return fmt.Sprintf("%s_%d", prefix, id) }

func apiURL(format string, args ...any) string {
	return "https://" + APIHost + "/" + fmt.Sprintf(format, args...)
}

func viewAccount(a *account) any {
	if a == nil {
		return nil
	}
	return object{
		"login": a.login, "id": a.id, "node_id": nodeID(a.kind[:1], a.id), "type": a.kind, "site_admin": false,
		"url": apiURL("users/%s", a.login), "html_url": fmt.Sprintf("https://%s/%s", Host, strings.TrimSuffix(a.login, "[bot]")),
	}
}

func (r *repository) visibility() string {
	if r.private {
		return "private"
	}
	return "public"
}

// viewRepo renders a repository for somebody who holds a token, or nobody.
func viewRepo(r *repository, t *token) any {
	may := func(name, level string) bool { return t.covers(r) && t.Permissions.has(name, level) }
	return object{
		"id": r.id, "node_id": nodeID("R", r.id), "name": r.name, "full_name": r.fullName(), "owner": viewAccount(r.owner),
		"private": r.private, "visibility": r.visibility(), "description": r.description, "homepage": r.homepage,
		"fork": false, "archived": r.archived, "disabled": false, "is_template": false,
		"html_url": fmt.Sprintf("https://%s/%s", Host, r.fullName()), "url": apiURL("repos/%s", r.fullName()),
		"clone_url": fmt.Sprintf("https://%s/%s.git", Host, r.fullName()), "ssh_url": fmt.Sprintf("git@%s:%s.git", Host, r.fullName()),
		"default_branch": r.defaultBranch, "has_issues": r.hasIssues, "has_wiki": r.hasWiki, "has_projects": false,
		"allow_merge_commit": true, "allow_squash_merge": true, "allow_rebase_merge": false, "allow_auto_merge": false,
		"delete_branch_on_merge": r.deleteMerged, "open_issues_count": r.countOpen(), "forks_count": 0, "stargazers_count": 0,
		"created_at": stamp(r.created), "updated_at": stamp(r.pushed), "pushed_at": stamp(r.pushed),
		"permissions": object{
			"admin": may("administration", "write"), "maintain": false, "push": may("contents", "write"), "triage": false,
			"pull": !r.private || may("contents", "read"),
		},
	}
}

func (r *repository) countOpen() int {
	n := 0
	for _, i := range r.issues {
		if i.state() == "OPEN" {
			n++
		}
	}
	return n
}

func viewLabel(l *label) any {
	return object{"id": l.id, "node_id": nodeID("LA", l.id), "name": l.name, "color": l.color, "description": l.description, "default": false}
}

// state is REST's: open or closed.
func restState(i *issue) string {
	if i.state() == "OPEN" {
		return "open"
	}
	return "closed"
}

func viewIssue(i *issue) any {
	v := object{
		"id": i.id, "node_id": i.nodeID(), "number": i.number, "title": i.title, "body": i.body, "state": restState(i),
		"state_reason": nil, "user": viewAccount(i.author), "locked": false, "comments": len(i.comments),
		"labels": each(i.labels, viewLabel), "assignees": each(i.assignees, viewAccount), "author_association": "NONE",
		"created_at": stamp(i.created), "updated_at": stamp(i.updated), "closed_at": maybe(i.closed),
		"html_url": i.url(), "url": apiURL("repos/%s/issues/%d", i.repo.fullName(), i.number),
		"repository_url": apiURL("repos/%s", i.repo.fullName()),
	}
	if i.reason != "" {
		v["state_reason"] = i.reason
	}
	if i.pull != nil {
		v["pull_request"] = object{"html_url": i.url(), "url": apiURL("repos/%s/pulls/%d", i.repo.fullName(), i.number)}
	}
	return v
}

func (i *issue) nodeID() string {
	if i.pull != nil {
		return nodeID("PR", i.id)
	}
	return nodeID("I", i.id)
}

func viewComment(c *comment) any {
	return object{
		"id": c.id, "node_id": nodeID("IC", c.id), "body": c.body, "user": viewAccount(c.author), "html_url": c.url(),
		"created_at": stamp(c.created), "updated_at": stamp(c.created), "author_association": "NONE",
	}
}

func viewReview(r *review) any {
	return object{
		"id": r.id, "node_id": nodeID("PRR", r.id), "body": r.body, "state": r.state, "user": viewAccount(r.author),
		"html_url": r.url(), "commit_id": r.commit, "submitted_at": stamp(r.created), "author_association": "NONE",
	}
}

// viewPull renders a pull request; mergeable is found by trying.
func (c *call) viewPull(i *issue) any {
	p := i.pull
	v := viewIssue(i).(object)
	delete(v, "pull_request")
	side := func(branch, sha string) any {
		return object{"ref": branch, "sha": sha, "label": i.repo.owner.login + ":" + branch,
			"user": viewAccount(i.repo.owner), "repo": viewRepo(i.repo, c.caller.token)}
	}
	v["url"] = apiURL("repos/%s/pulls/%d", i.repo.fullName(), i.number)
	v["diff_url"], v["patch_url"] = i.url()+".diff", i.url()+".patch"
	v["head"], v["base"] = side(p.head, p.headSHA), side(p.base, p.baseSHA)
	v["draft"], v["merged"], v["merged_at"] = p.draft, p.merged != nil, maybe(p.merged)
	v["merged_by"], v["merge_commit_sha"] = viewAccount(p.mergedBy), p.mergeCommit
	v["review_comments"], v["requested_reviewers"], v["maintainer_can_modify"] = 0, []any{}, false
	if _, ok := i.repo.git.mergedTree(c.ctx, p.baseSHA, p.headSHA); ok && i.state() == "OPEN" {
		v["mergeable"], v["mergeable_state"] = true, "clean"
	} else {
		v["mergeable"], v["mergeable_state"] = false, "dirty"
	}
	files, _ := i.repo.git.diff(c.ctx, p.baseSHA, p.headSHA)
	add, drop := 0, 0
	for _, f := range files {
		add, drop = add+f.add, drop+f.drop
	}
	v["changed_files"], v["additions"], v["deletions"] = len(files), add, drop
	list, _ := i.repo.git.commits(c.ctx, p.baseSHA+".."+p.headSHA)
	v["commits"] = len(list)
	return v
}

func viewRelease(r *repository, one *release) any {
	return object{
		"id": one.id, "node_id": nodeID("RE", one.id), "tag_name": one.tag, "name": one.name, "body": one.body,
		"draft": one.draft, "prerelease": one.prerelease, "author": viewAccount(one.author), "assets": []any{},
		"target_commitish": one.targetCommitish, "created_at": stamp(one.created), "published_at": stamp(one.created),
		"html_url":   fmt.Sprintf("https://%s/%s/releases/tag/%s", Host, r.fullName(), one.tag),
		"url":        apiURL("repos/%s/releases/%d", r.fullName(), one.id),
		"upload_url": fmt.Sprintf("https://uploads.%s/repos/%s/releases/%d/assets{?name,label}", Host, r.fullName(), one.id),
	}
}

func viewCommit(r *repository, c commitInfo) any {
	person := func(s signature, when string) any { return object{"name": s.name, "email": s.email, "date": when} }
	parents := each(c.parents, func(sha string) any { return object{"sha": sha} })
	return object{
		"sha": c.sha, "node_id": "C_" + c.sha, "parents": parents, "author": nil, "committer": nil,
		"html_url": fmt.Sprintf("https://%s/%s/commit/%s", Host, r.fullName(), c.sha),
		"url":      apiURL("repos/%s/commits/%s", r.fullName(), c.sha),
		"commit": object{
			"message": c.message, "tree": object{"sha": c.tree}, "comment_count": 0,
			"author": person(c.author, c.authored), "committer": person(c.committer, c.committed),
		},
	}
}

func viewRef(r *repository, ref, sha string) any {
	return object{
		"ref": ref, "node_id": "REF_" + ref, "url": apiURL("repos/%s/git/%s", r.fullName(), ref),
		"object": object{"type": "commit", "sha": sha, "url": apiURL("repos/%s/git/commits/%s", r.fullName(), sha)},
	}
}
