package github

import (
	"cmp"
	"encoding/base64"
	"net/http"
	"path"
	"slices"
	"strings"
)

// repoRoutes are a repository, its files, releases and settings.
var repoRoutes = []route{
	{pattern: "GET /repos/{owner}/{repo}", need: needs("metadata=read"), serve: (*call).getRepo},
	{pattern: "PATCH /repos/{owner}/{repo}", need: needs("administration=write"), serve: (*call).editRepo},
	{pattern: "DELETE /repos/{owner}/{repo}", need: needs("administration=write"), serve: (*call).deleteRepo},
	{pattern: "GET /repos/{owner}/{repo}/topics", need: needs("metadata=read"), serve: func(*call) (int, any, error) {
		return http.StatusOK, object{"names": []any{}}, nil
	}},
	{pattern: "PUT /repos/{owner}/{repo}/topics", need: needs("administration=write"), serve: echo},
	{pattern: "GET /repos/{owner}/{repo}/collaborators", need: needs("metadata=read"), serve: nothing},
	{pattern: "PUT /repos/{owner}/{repo}/collaborators/{user}", need: needs("administration=write"), serve: echo},
	{pattern: "GET /repos/{owner}/{repo}/keys", need: needs("administration=read"), serve: nothing},
	{pattern: "POST /repos/{owner}/{repo}/keys", need: needs("administration=write"), serve: echo},
	{pattern: "GET /repos/{owner}/{repo}/hooks", need: needs("repository_hooks=read"), serve: nothing},
	{pattern: "POST /repos/{owner}/{repo}/hooks", need: needs("repository_hooks=write"), serve: echo},
	{pattern: "GET /repos/{owner}/{repo}/actions/secrets", need: needs("secrets=read"), serve: nothing},
	{pattern: "POST /repos/{owner}/{repo}/actions/workflows/{id}/dispatches", need: needs("actions=write"), serve: echo},
	{pattern: "POST /repos/{owner}/{repo}/dispatches", need: needs("contents=write"), serve: echo},
	{pattern: "POST /repos/{owner}/{repo}/statuses/{sha}", need: needs("statuses=write"), serve: echo},
	{pattern: "PUT /repos/{owner}/{repo}/branches/{branch}/protection", need: needs("administration=write"), serve: echo},
	{pattern: "POST /repos/{owner}/{repo}/forks", need: needs("administration=write,contents=read"), serve: echo},

	{pattern: "GET /repos/{owner}/{repo}/contents/{path...}", need: needs("contents=read"), serve: (*call).getContents},
	{pattern: "PUT /repos/{owner}/{repo}/contents/{path...}", need: needs("contents=write"), serve: (*call).putContents},
	{pattern: "DELETE /repos/{owner}/{repo}/contents/{path...}", need: needs("contents=write"), serve: (*call).putContents},
	{pattern: "GET /repos/{owner}/{repo}/readme", need: needs("contents=read"), serve: (*call).getContents},

	{pattern: "GET /repos/{owner}/{repo}/releases", need: needs("contents=read"), serve: (*call).listReleases},
	{pattern: "GET /repos/{owner}/{repo}/releases/latest", need: needs("contents=read"), serve: (*call).getRelease},
	{pattern: "GET /repos/{owner}/{repo}/releases/tags/{tag...}", need: needs("contents=read"), serve: (*call).getRelease},
	{pattern: "POST /repos/{owner}/{repo}/releases", need: needs("contents=write"), serve: (*call).createRelease},
	{pattern: "DELETE /repos/{owner}/{repo}/releases/{id}", need: needs("contents=write"), serve: (*call).deleteRelease},
}

// nothing and echo stand for operations whose permission is what matters here.
func nothing(*call) (int, any, error) { return http.StatusOK, []any{}, nil }

func echo(c *call) (int, any, error) {
	var v object
	if err := c.read(&v); err != nil {
		return 0, nil, err
	}
	return http.StatusCreated, v, nil
}

func (c *call) getRepo() (int, any, error) {
	return http.StatusOK, viewRepo(c.repo, c.caller.token), nil
}

func (c *call) editRepo() (int, any, error) {
	var v struct {
		Description   *string `json:"description"`
		Homepage      *string `json:"homepage"`
		Private       *bool   `json:"private"`
		Visibility    *string `json:"visibility"`
		DefaultBranch *string `json:"default_branch"`
		HasIssues     *bool   `json:"has_issues"`
		HasWiki       *bool   `json:"has_wiki"`
		Archived      *bool   `json:"archived"`
		DeleteMerged  *bool   `json:"delete_branch_on_merge"`
	}
	if err := c.read(&v); err != nil {
		return 0, nil, err
	}
	if v.DefaultBranch != nil && c.repo.git.branch(c.ctx, *v.DefaultBranch) == "" {
		return 0, nil, invalid("Repository", "default_branch", "invalid",
			"The branch "+*v.DefaultBranch+" was not found. Please push that ref first or create it via the Git Data API.")
	}
	if v.Visibility != nil {
		private := *v.Visibility != "public"
		v.Private = &private
	}
	set(&c.repo.description, v.Description)
	set(&c.repo.homepage, v.Homepage)
	set(&c.repo.private, v.Private)
	set(&c.repo.defaultBranch, v.DefaultBranch)
	set(&c.repo.hasIssues, v.HasIssues)
	set(&c.repo.hasWiki, v.HasWiki)
	set(&c.repo.archived, v.Archived)
	set(&c.repo.deleteMerged, v.DeleteMerged)
	return c.getRepo()
}

// set takes over what was given.
func set[T any](to *T, from *T) {
	if from != nil {
		*to = *from
	}
}

func (c *call) deleteRepo() (int, any, error) {
	gone := func(r *repository) bool { return r == c.repo }
	c.world.repos = slices.DeleteFunc(c.world.repos, gone)
	for _, in := range c.installs {
		if in.repos != nil {
			in.repos = slices.DeleteFunc(slices.Clone(in.repos), gone)
		}
	}
	return http.StatusNoContent, nil, nil
}

// commitAt is the commit that ?ref= names, or the tip of the default branch.
func (c *call) commitAt(ref string) (string, error) {
	for _, full := range []string{"refs/heads/" + ref, "refs/tags/" + ref, ref} {
		if ref == "" {
			full = "refs/heads/" + c.repo.defaultBranch
		}
		if sha := c.repo.git.resolve(c.ctx, full, "commit"); sha != "" {
			return sha, nil
		}
	}
	return "", &apiError{status: 404, message: "No commit found for the ref " + ref}
}

func (c *call) viewEntry(e treeEntry, content any) object {
	kind := map[string]string{"blob": "file", "tree": "dir", "commit": "submodule"}[e.kind]
	v := object{
		"type": kind, "name": path.Base(e.path), "path": e.path, "sha": e.sha, "size": 0,
		"url": apiURL("repos/%s/contents/%s", c.repo.fullName(), e.path), "html_url": "https://" + Host + "/" + c.repo.fullName() + "/blob/" + c.repo.defaultBranch + "/" + e.path,
		"git_url": apiURL("repos/%s/git/blobs/%s", c.repo.fullName(), e.sha),
	}
	if content, ok := content.([]byte); ok {
		v["encoding"], v["content"], v["size"] = "base64", base64.StdEncoding.EncodeToString(content), len(content)
	}
	return v
}

func (c *call) getContents() (int, any, error) {
	commit, err := c.commitAt(c.r.FormValue("ref"))
	if err != nil {
		return 0, nil, err
	}
	name := strings.Trim(c.r.PathValue("path"), "/")
	if strings.HasSuffix(c.r.URL.Path, "/readme") {
		name = "README.md"
	}
	entries, err := c.repo.git.list(c.ctx, commit, name)
	if err == nil && len(entries) == 1 && entries[0].kind == "tree" {
		entries, err = c.repo.git.list(c.ctx, commit, name+"/")
		return http.StatusOK, each(entries, func(e treeEntry) any { return c.viewEntry(e, nil) }), err
	}
	switch {
	case err != nil:
		return 0, nil, err
	case name == "":
		return http.StatusOK, each(entries, func(e treeEntry) any { return c.viewEntry(e, nil) }), nil
	case len(entries) != 1:
		return 0, nil, notFound()
	case entries[0].kind != "blob":
		return http.StatusOK, c.viewEntry(entries[0], nil), nil
	}
	content, err := c.repo.git.blob(c.ctx, entries[0].sha)
	return http.StatusOK, c.viewEntry(entries[0], content), err
}

// putContents makes, changes or removes one file.
func (c *call) putContents() (int, any, error) {
	var v struct{ Message, Content, SHA, Branch string }
	if err := c.read(&v); err != nil {
		return 0, nil, err
	}
	name, branch := strings.Trim(c.r.PathValue("path"), "/"), cmp.Or(v.Branch, c.repo.defaultBranch)
	content, err := base64.StdEncoding.DecodeString(strings.ReplaceAll(v.Content, "\n", ""))
	switch {
	case v.Message == "":
		return 0, nil, unprocessable("Invalid request.\n\n\"message\" wasn't supplied.")
	case err != nil:
		return 0, nil, unprocessable("content is not valid Base64")
	case isWorkflow(name) && !c.caller.token.Permissions.has("workflows", "write"):
		c.w.Header().Set("X-Accepted-Github-Permissions", "contents=write,workflows=write")
		return 0, nil, forbidden()
	}
	parent := c.repo.git.branch(c.ctx, branch)
	if parent == "" {
		return 0, nil, &apiError{status: 404, message: "Branch " + branch + " not found"}
	}
	entries, err := c.repo.git.list(c.ctx, parent, name)
	if err != nil {
		return 0, nil, err
	}
	old := ""
	if len(entries) == 1 {
		old = entries[0].sha
	}
	switch {
	case c.r.Method == http.MethodDelete && old == "":
		return 0, nil, notFound()
	case old != "" && v.SHA == "":
		return 0, nil, unprocessable("Invalid request.\n\n\"sha\" wasn't supplied.")
	case old != v.SHA:
		return 0, nil, &apiError{status: 409, message: name + " does not match " + v.SHA}
	}
	if content == nil {
		content = []byte{}
	}
	if c.r.Method == http.MethodDelete {
		content = nil
	}
	return c.commitFile(branch, parent, v.Message, change{name, content}, old == "")
}

func (c *call) commitFile(branch, parent, message string, one change, made bool) (int, any, error) {
	commit, err := c.repo.git.commit(c.ctx, parent, signatureOf(c.author(c.caller)), message, []change{one})
	if err != nil {
		return 0, nil, err
	}
	if err := c.moved(branch, commit, parent); err != nil {
		return 0, nil, err
	}
	answer := object{"content": nil, "commit": object{"sha": commit, "message": message}}
	if entries, err := c.repo.git.list(c.ctx, commit, one.path); err == nil && len(entries) == 1 {
		answer["content"] = c.viewEntry(entries[0], nil)
	}
	if made {
		return http.StatusCreated, answer, nil
	}
	return http.StatusOK, answer, nil
}

// moved moves a branch on the server's side, and what follows it.
func (c *call) moved(branch, to, from string) error {
	if err := c.repo.git.setRef(c.ctx, "refs/heads/"+branch, to, from); err != nil {
		return &apiError{status: 409, message: branch + " was updated meanwhile"}
	}
	c.repo.pushed = c.now()
	c.follow(c.ctx, c.repo)
	return nil
}

func (c *call) listReleases() (int, any, error) {
	return http.StatusOK, each(page(c, newest(c.repo.releases)), func(one *release) any { return viewRelease(c.repo, one) }), nil
}

func (c *call) getRelease() (int, any, error) {
	tag := c.r.PathValue("tag")
	for _, one := range newest(c.repo.releases) {
		if !one.draft && (tag == "" || one.tag == tag) {
			return http.StatusOK, viewRelease(c.repo, one), nil
		}
	}
	return 0, nil, notFound()
}

func (c *call) createRelease() (int, any, error) {
	var v struct {
		Tag    string `json:"tag_name"`
		Target string `json:"target_commitish"`
		Name   string
		Body   string
		Draft  bool
		Pre    bool `json:"prerelease"`
	}
	if err := c.read(&v); err != nil {
		return 0, nil, err
	}
	if v.Tag == "" {
		return 0, nil, missing("Release", "tag_name")
	}
	if slices.ContainsFunc(c.repo.releases, func(one *release) bool { return one.tag == v.Tag }) {
		return 0, nil, invalid("Release", "tag_name", "already_exists", "")
	}
	at, err := c.commitAt(v.Target)
	if err != nil {
		return 0, nil, invalid("Release", "target_commitish", "invalid", "")
	}
	tag := "refs/tags/" + v.Tag
	if !v.Draft && c.repo.git.resolve(c.ctx, tag, "commit") == "" {
		if err := c.repo.git.setRef(c.ctx, tag, at, ""); err != nil {
			return 0, nil, invalid("Release", "tag_name", "", "tag_name is not well-formed")
		}
	}
	one := &release{id: c.world.id(), author: c.author(c.caller), tag: v.Tag, name: cmp.Or(v.Name, v.Tag), body: v.Body,
		draft: v.Draft, prerelease: v.Pre, created: c.now(), targetCommitish: cmp.Or(v.Target, c.repo.defaultBranch)}
	c.repo.releases = append(c.repo.releases, one)
	return http.StatusCreated, viewRelease(c.repo, one), nil
}

func (c *call) deleteRelease() (int, any, error) {
	at := slices.IndexFunc(c.repo.releases, func(one *release) bool { return nodeID("", one.id) == "_"+c.r.PathValue("id") })
	if at < 0 {
		return 0, nil, notFound()
	}
	c.repo.releases = slices.Delete(c.repo.releases, at, at+1)
	return http.StatusNoContent, nil, nil
}
