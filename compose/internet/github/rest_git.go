package github

import (
	"encoding/base64"
	"net/http"
	"slices"
	"strings"
)

// gitRoutes are branches, references, commits and git's own objects.
var gitRoutes = []route{
	{pattern: "GET /repos/{owner}/{repo}/branches", need: needs("contents=read"), serve: (*call).listBranches},
	{pattern: "GET /repos/{owner}/{repo}/branches/{branch...}", need: needs("contents=read"), serve: (*call).getBranch},
	{pattern: "GET /repos/{owner}/{repo}/tags", need: needs("contents=read"), serve: (*call).listTags},
	{pattern: "GET /repos/{owner}/{repo}/commits", need: needs("contents=read"), serve: (*call).listCommits},
	{pattern: "GET /repos/{owner}/{repo}/commits/{ref...}", need: needs("contents=read"), serve: (*call).getCommit},
	{pattern: "GET /repos/{owner}/{repo}/compare/{range...}", need: needs("contents=read"), serve: (*call).compare},
	{pattern: "GET /repos/{owner}/{repo}/git/ref/{ref...}", need: needs("contents=read"), serve: (*call).getRef},
	{pattern: "GET /repos/{owner}/{repo}/git/matching-refs/{ref...}", need: needs("contents=read"), serve: (*call).matchingRefs},
	{pattern: "POST /repos/{owner}/{repo}/git/refs", need: needs("contents=write"), serve: (*call).createRef},
	{pattern: "PATCH /repos/{owner}/{repo}/git/refs/{ref...}", need: needs("contents=write"), serve: (*call).updateRef},
	{pattern: "DELETE /repos/{owner}/{repo}/git/refs/{ref...}", need: needs("contents=write"), serve: (*call).deleteRef},
	{pattern: "GET /repos/{owner}/{repo}/git/commits/{ref}", need: needs("contents=read"), serve: (*call).getCommit},
	{pattern: "POST /repos/{owner}/{repo}/git/blobs", need: needs("contents=write"), serve: (*call).createBlob},
	{pattern: "POST /repos/{owner}/{repo}/git/trees", need: needs("contents=write"), serve: (*call).createTree},
	{pattern: "POST /repos/{owner}/{repo}/git/commits", need: needs("contents=write"), serve: (*call).createCommit},
}

func (c *call) viewBranch(name string) (any, error) {
	list, err := c.repo.git.commits(c.ctx, "-1", "refs/heads/"+name, "--")
	if err != nil || len(list) != 1 {
		return nil, &apiError{status: 404, message: "Branch not found"}
	}
	return object{"name": name, "commit": viewCommit(c.repo, list[0]), "protected": false}, nil
}

func (c *call) listBranches() (int, any, error) {
	names, err := c.repo.git.branches(c.ctx)
	if err != nil {
		return 0, nil, err
	}
	return http.StatusOK, each(page(c, names), func(name string) any {
		return object{"name": name, "commit": object{"sha": c.repo.git.branch(c.ctx, name)}, "protected": false}
	}), nil
}

func (c *call) getBranch() (int, any, error) {
	v, err := c.viewBranch(c.r.PathValue("branch"))
	return http.StatusOK, v, err
}

func (c *call) listTags() (int, any, error) {
	out, err := c.repo.git.run(c.ctx, "", nil, "for-each-ref", "--format=%(refname:lstrip=2)", "refs/tags")
	if err != nil {
		return 0, nil, err
	}
	return http.StatusOK, each(page(c, strings.Fields(out)), func(tag string) any {
		return object{"name": tag, "commit": object{"sha": c.repo.git.resolve(c.ctx, "refs/tags/"+tag, "commit")}}
	}), nil
}

func (c *call) listCommits() (int, any, error) {
	at, err := c.commitAt(c.r.FormValue("sha"))
	if err != nil {
		return 0, nil, err
	}
	list, err := c.repo.git.commits(c.ctx, at, "--")
	return http.StatusOK, each(page(c, list), func(one commitInfo) any { return viewCommit(c.repo, one) }), err
}

func (c *call) getCommit() (int, any, error) {
	at, err := c.commitAt(c.r.PathValue("ref"))
	if err != nil {
		return 0, nil, &apiError{status: 422, message: "No commit found for SHA: " + c.r.PathValue("ref")}
	}
	list, err := c.repo.git.commits(c.ctx, "-1", at, "--")
	if err != nil || len(list) != 1 {
		return 0, nil, notFound()
	}
	return http.StatusOK, viewCommit(c.repo, list[0]), nil
}

func viewFile(f fileChange) any {
	return object{"filename": f.path, "status": f.status, "additions": f.add, "deletions": f.drop, "changes": f.add + f.drop}
}

func (c *call) compare() (int, any, error) {
	base, head, ok := strings.Cut(c.r.PathValue("range"), "...")
	if !ok {
		return 0, nil, notFound()
	}
	from, err := c.commitAt(base)
	if err != nil {
		return 0, nil, notFound()
	}
	to, err := c.commitAt(head)
	if err != nil {
		return 0, nil, notFound()
	}
	ahead, err := c.repo.git.commits(c.ctx, from+".."+to, "--")
	if err != nil {
		return 0, nil, err
	}
	behind, err := c.repo.git.commits(c.ctx, to+".."+from, "--")
	if err != nil {
		return 0, nil, err
	}
	files, err := c.repo.git.diff(c.ctx, from, to)
	if err != nil {
		return 0, nil, err
	}
	status := "identical"
	switch {
	case len(ahead) > 0 && len(behind) > 0:
		status = "diverged"
	case len(ahead) > 0:
		status = "ahead"
	case len(behind) > 0:
		status = "behind"
	}
	return http.StatusOK, object{
		"status": status, "ahead_by": len(ahead), "behind_by": len(behind), "total_commits": len(ahead),
		"commits": each(newest(ahead), func(one commitInfo) any { return viewCommit(c.repo, one) }), "files": each(files, viewFile),
	}, nil
}

// ref is the reference of the path, refs/heads/... or refs/tags/..., and what it holds.
func (c *call) ref() (name, sha string, err error) {
	name = "refs/" + c.r.PathValue("ref")
	if sha = c.repo.git.resolve(c.ctx, name, "commit"); sha == "" {
		return "", "", notFound()
	}
	return name, sha, nil
}

func (c *call) getRef() (int, any, error) {
	name, sha, err := c.ref()
	return http.StatusOK, viewRef(c.repo, name, sha), err
}

func (c *call) matchingRefs() (int, any, error) {
	out, err := c.repo.git.run(c.ctx, "", nil, "for-each-ref", "--format=%(refname)")
	if err != nil {
		return 0, nil, err
	}
	names := slices.DeleteFunc(strings.Fields(out), func(name string) bool {
		return !strings.HasPrefix(name, "refs/"+c.r.PathValue("ref"))
	})
	return http.StatusOK, each(page(c, names), func(name string) any {
		return viewRef(c.repo, name, c.repo.git.resolve(c.ctx, name, "commit"))
	}), nil
}

// place moves a reference to a commit, if the caller may bring in the workflow
// files that this publishes.
func (c *call) place(ref, to, from string) error {
	if !strings.HasPrefix(ref, "refs/heads/") && !strings.HasPrefix(ref, "refs/tags/") {
		return unprocessable("Reference name must start with 'refs/heads/' or 'refs/tags/'.")
	}
	to = c.repo.git.resolve(c.ctx, to, "commit")
	if to == "" {
		return unprocessable("Object does not exist")
	}
	if err := c.mayPublish(to); err != nil {
		return err
	}
	if branch, ok := strings.CutPrefix(ref, "refs/heads/"); ok {
		return c.moved(branch, to, from)
	}
	return c.repo.git.setRef(c.ctx, ref, to, from)
}

// mayPublish refuses a commit that brings in workflow files without the permission.
func (c *call) mayPublish(commit string) error {
	if c.caller.token.Permissions.has("workflows", "write") {
		return nil
	}
	path, err := c.repo.git.newWorkflow(c.ctx, nil, commit)
	if err == nil && path != "" {
		return &apiError{status: 403, message: workflowRefusal(path), kind: "FORBIDDEN"}
	}
	return err
}

func (c *call) createRef() (int, any, error) {
	var v struct{ Ref, SHA string }
	if err := c.read(&v); err != nil {
		return 0, nil, err
	}
	if c.repo.git.resolve(c.ctx, v.Ref, "commit") != "" {
		return 0, nil, unprocessable("Reference already exists")
	}
	if err := c.place(v.Ref, v.SHA, ""); err != nil {
		return 0, nil, err
	}
	return http.StatusCreated, viewRef(c.repo, v.Ref, v.SHA), nil
}

func (c *call) updateRef() (int, any, error) {
	var v struct {
		SHA   string
		Force bool
	}
	if err := c.read(&v); err != nil {
		return 0, nil, err
	}
	name, old, err := c.ref()
	if err != nil {
		return 0, nil, unprocessable("Reference does not exist")
	}
	if !isObject(v.SHA) {
		return 0, nil, unprocessable("Object does not exist")
	}
	if _, err := c.repo.git.run(c.ctx, "", nil, "merge-base", "--is-ancestor", old, v.SHA); err != nil && !v.Force {
		return 0, nil, unprocessable("Update is not a fast forward")
	}
	if err := c.place(name, v.SHA, old); err != nil {
		return 0, nil, err
	}
	return http.StatusOK, viewRef(c.repo, name, v.SHA), nil
}

func (c *call) deleteRef() (int, any, error) {
	name, old, err := c.ref()
	if err != nil || strings.HasPrefix(name, "refs/pull/") {
		return 0, nil, unprocessable("Reference does not exist")
	}
	return http.StatusNoContent, nil, c.repo.git.setRef(c.ctx, name, "", old)
}

func (c *call) createBlob() (int, any, error) {
	var v struct{ Content, Encoding string }
	if err := c.read(&v); err != nil {
		return 0, nil, err
	}
	if v.Encoding == "base64" {
		raw, err := base64.StdEncoding.DecodeString(v.Content)
		if err != nil {
			return 0, nil, unprocessable("content is not valid Base64")
		}
		v.Content = string(raw)
	}
	sha, err := c.repo.git.run(c.ctx, v.Content, nil, "hash-object", "-w", "--stdin")
	return http.StatusCreated, object{"sha": sha, "url": apiURL("repos/%s/git/blobs/%s", c.repo.fullName(), sha)}, err
}

// createTree lays files over the tree of base_tree. As a commit does with it, it may
// hold workflow files: what counts is the reference that publishes them.
func (c *call) createTree() (int, any, error) {
	var v struct {
		Base string `json:"base_tree"`
		Tree []struct {
			Path, Content string
			SHA           *string
		}
	}
	if err := c.read(&v); err != nil {
		return 0, nil, err
	}
	base := v.Base
	if base == "" {
		empty, err := c.repo.git.run(c.ctx, "", nil, "mktree")
		if err != nil {
			return 0, nil, err
		}
		base = empty
	}
	if base = c.repo.git.resolve(c.ctx, base, "tree"); base == "" {
		return 0, nil, unprocessable("base_tree is not a valid tree oid")
	}
	var changes []change
	for _, e := range v.Tree {
		content := []byte(e.Content)
		if e.SHA != nil {
			var err error
			if !isObject(*e.SHA) {
				return 0, nil, unprocessable("tree.sha %s is not a valid blob", *e.SHA)
			}
			if content, err = c.repo.git.blob(c.ctx, *e.SHA); err != nil {
				return 0, nil, unprocessable("tree.sha %s is not a valid blob", *e.SHA)
			}
		}
		changes = append(changes, change{e.Path, content})
	}
	tree, err := c.repo.git.tree(c.ctx, base, changes)
	return http.StatusCreated, object{"sha": tree, "url": apiURL("repos/%s/git/trees/%s", c.repo.fullName(), tree)}, err
}

func (c *call) createCommit() (int, any, error) {
	var v struct {
		Message, Tree string
		Parents       []string
	}
	if err := c.read(&v); err != nil {
		return 0, nil, err
	}
	if c.repo.git.resolve(c.ctx, v.Tree, "tree") == "" || !isObject(v.Tree) {
		return 0, nil, unprocessable("Tree SHA does not exist")
	}
	for _, p := range v.Parents {
		if !isObject(p) || c.repo.git.resolve(c.ctx, p, "commit") == "" {
			return 0, nil, unprocessable("Parent SHA does not exist or is not a commit object")
		}
	}
	sha, err := c.repo.git.commitTree(c.ctx, v.Tree, signatureOf(c.author(c.caller)), v.Message, v.Parents...)
	return http.StatusCreated, object{"sha": sha, "message": v.Message, "tree": object{"sha": v.Tree}}, err
}
