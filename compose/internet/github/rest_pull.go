package github

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
)

var pullRoutes = []route{
	{pattern: "GET /repos/{owner}/{repo}/pulls", need: needs("pull_requests=read"), serve: (*call).listPulls},
	{pattern: "POST /repos/{owner}/{repo}/pulls", need: needs("pull_requests=write"), serve: (*call).createPull},
	{pattern: "GET /repos/{owner}/{repo}/pulls/{number}", need: needs("pull_requests=read"), serve: (*call).getPull},
	{pattern: "PATCH /repos/{owner}/{repo}/pulls/{number}", need: needs("pull_requests=write"), serve: (*call).editPull},
	{pattern: "GET /repos/{owner}/{repo}/pulls/{number}/files", need: needs("pull_requests=read"), serve: (*call).listPullFiles},
	{pattern: "GET /repos/{owner}/{repo}/pulls/{number}/commits", need: needs("pull_requests=read"), serve: (*call).listPullCommits},
	{pattern: "GET /repos/{owner}/{repo}/pulls/{number}/reviews", need: needs("pull_requests=read"), serve: (*call).listReviews},
	{pattern: "POST /repos/{owner}/{repo}/pulls/{number}/reviews", need: needs("pull_requests=write"), serve: (*call).createReview},
	{pattern: "POST /repos/{owner}/{repo}/pulls/{number}/requested_reviewers", need: needs("pull_requests=write"), serve: (*call).requestReview},
	{pattern: "GET /repos/{owner}/{repo}/pulls/{number}/merge", need: needs("contents=read"), serve: (*call).isMerged},
	{pattern: "PUT /repos/{owner}/{repo}/pulls/{number}/merge", need: needs("contents=write"), serve: (*call).mergePull},
}

// pull is the pull request of the path; an issue's number is none.
func (c *call) pull() (*issue, error) {
	if c.issue.pull == nil {
		return nil, notFound()
	}
	return c.issue, nil
}

func (c *call) listPulls() (int, any, error) {
	head := c.r.FormValue("head")
	if owner, branch, ok := strings.Cut(head, ":"); ok && strings.EqualFold(owner, c.repo.owner.login) {
		head = branch
	}
	found := slices.DeleteFunc(newest(c.repo.issues), func(i *issue) bool {
		return i.pull == nil || !c.listed(i) || head != "" && head != i.pull.head ||
			c.r.FormValue("base") != "" && c.r.FormValue("base") != i.pull.base
	})
	return http.StatusOK, each(page(c, found), c.viewPull), nil
}

// A pullRequest is what opens one.
type pullRequest struct {
	Title, Body, Head, Base string
	Draft                   bool
}

func (c *call) createPull() (int, any, error) {
	var v pullRequest
	if err := c.read(&v); err != nil {
		return 0, nil, err
	}
	i, err := c.openPull(c.ctx, c.caller, c.repo, v)
	if err != nil {
		return 0, nil, err
	}
	return http.StatusCreated, c.viewPull(i), nil
}

// openPull opens a pull request between two branches of a repository.
func (s *Server) openPull(ctx context.Context, by caller, r *repository, v pullRequest) (*issue, error) {
	if owner, branch, ok := strings.Cut(v.Head, ":"); ok && strings.EqualFold(owner, r.owner.login) {
		v.Head = branch
	}
	head, base := r.git.branch(ctx, v.Head), r.git.branch(ctx, v.Base)
	switch {
	case strings.TrimSpace(v.Title) == "":
		return nil, missing("PullRequest", "title")
	case base == "":
		return nil, invalid("PullRequest", "base", "invalid", "")
	case head == "":
		return nil, invalid("PullRequest", "head", "invalid", "")
	}
	fresh, err := r.git.commits(ctx, base+".."+head, "--")
	if err != nil {
		return nil, err
	}
	if len(fresh) == 0 {
		return nil, invalid("PullRequest", "head", "", fmt.Sprintf("No commits between %s and %s", v.Base, v.Head))
	}
	if slices.ContainsFunc(r.issues, func(i *issue) bool {
		return i.pull != nil && i.state() == "OPEN" && i.pull.head == v.Head && i.pull.base == v.Base
	}) {
		return nil, invalid("PullRequest", "head", "", fmt.Sprintf("A pull request already exists for %s:%s.", r.owner.login, v.Head))
	}
	p := &pull{base: v.Base, head: v.Head, headSHA: head, baseSHA: base, draft: v.Draft}
	i := s.world.open(r, s.author(by), v.Title, v.Body, p, s.now())
	return i, r.git.setRef(ctx, fmt.Sprintf("refs/pull/%d/head", i.number), head, "")
}

func (c *call) getPull() (int, any, error) {
	i, err := c.pull()
	if err != nil {
		return 0, nil, err
	}
	if strings.Contains(c.r.Header.Get("Accept"), "diff") {
		return c.getDiff(i)
	}
	return http.StatusOK, c.viewPull(i), nil
}

// getDiff is what gh pr diff asks for.
func (c *call) getDiff(i *issue) (int, any, error) {
	diff, err := c.repo.git.run(c.ctx, "", nil, "diff", i.pull.baseSHA+"..."+i.pull.headSHA)
	if err != nil {
		return 0, nil, err
	}
	return http.StatusOK, plain(diff + "\n"), nil
}

// plain is an answer that is not JSON.
type plain string

func (c *call) editPull() (int, any, error) {
	i, err := c.pull()
	if err != nil {
		return 0, nil, err
	}
	var v issueEdit
	if err := c.read(&v); err != nil {
		return 0, nil, err
	}
	if v.Base != nil {
		if c.repo.git.branch(c.ctx, *v.Base) == "" {
			return 0, nil, invalid("PullRequest", "base", "invalid", "")
		}
		i.pull.base = *v.Base
	}
	set(&i.title, v.Title)
	set(&i.body, v.Body)
	if v.State != nil {
		if err := c.close(i, *v.State == "closed", ""); err != nil {
			return 0, nil, err
		}
	}
	return http.StatusOK, c.viewPull(i), nil
}

func (c *call) listPullFiles() (int, any, error) {
	i, err := c.pull()
	if err != nil {
		return 0, nil, err
	}
	files, err := c.repo.git.diff(c.ctx, i.pull.baseSHA, i.pull.headSHA)
	return http.StatusOK, each(page(c, files), viewFile), err
}

func (c *call) listPullCommits() (int, any, error) {
	i, err := c.pull()
	if err != nil {
		return 0, nil, err
	}
	list, err := c.repo.git.commits(c.ctx, "--reverse", i.pull.baseSHA+".."+i.pull.headSHA, "--")
	return http.StatusOK, each(page(c, list), func(one commitInfo) any { return viewCommit(c.repo, one) }), err
}

func (c *call) listReviews() (int, any, error) {
	i, err := c.pull()
	if err != nil {
		return 0, nil, err
	}
	return http.StatusOK, each(page(c, i.pull.reviews), viewReview), nil
}

func (c *call) createReview() (int, any, error) {
	i, err := c.pull()
	if err != nil {
		return 0, nil, err
	}
	var v struct{ Event, Body string }
	if err := c.read(&v); err != nil {
		return 0, nil, err
	}
	r, err := c.world.review(i, c.author(c.caller), v.Event, v.Body, c.now())
	if err != nil {
		return 0, nil, err
	}
	return http.StatusOK, viewReview(r), nil
}

func (c *call) requestReview() (int, any, error) {
	i, err := c.pull()
	if err != nil {
		return 0, nil, err
	}
	return http.StatusCreated, c.viewPull(i), nil
}

func (c *call) isMerged() (int, any, error) {
	i, err := c.pull()
	if err != nil || i.pull.merged == nil {
		return 0, nil, notFound()
	}
	return http.StatusNoContent, nil, nil
}

// A mergeRequest says how a pull request is to be merged.
type mergeRequest struct {
	SHA     string
	Method  string `json:"merge_method"`
	Title   string `json:"commit_title"`
	Message string `json:"commit_message"`
}

func (c *call) mergePull() (int, any, error) {
	i, err := c.pull()
	if err != nil {
		return 0, nil, err
	}
	var v mergeRequest
	if err := c.read(&v); err != nil {
		return 0, nil, err
	}
	sha, err := c.merge(i, v)
	if err != nil {
		return 0, nil, err
	}
	return http.StatusOK, object{"sha": sha, "merged": true, "message": "Pull Request successfully merged"}, nil
}

// merge makes the merge and its commit. The permission has been judged; what
// remains is that of workflow files.
func (c *call) merge(i *issue, v mergeRequest) (string, error) {
	p, g := i.pull, i.repo.git
	base := g.branch(c.ctx, p.base)
	tree, clean := g.mergedTree(c.ctx, base, p.headSHA)
	switch {
	case i.state() != "OPEN" || p.draft || !clean:
		return "", &apiError{status: 405, message: "Pull Request is not mergeable", kind: "UNPROCESSABLE"}
	case v.SHA != "" && v.SHA != p.headSHA:
		return "", &apiError{status: 409, message: "Head branch was modified. Review and try the merge again.", kind: "UNPROCESSABLE"}
	}
	if err := c.mayMerge(g, base, p.headSHA); err != nil {
		return "", err
	}
	title, parents := fmt.Sprintf("Merge pull request #%d from %s/%s", i.number, i.repo.owner.login, p.head), []string{base, p.headSHA}
	switch v.Method {
	case "", "merge":
	case "squash":
		title, parents = fmt.Sprintf("%s (#%d)", i.title, i.number), parents[:1]
	default:
		return "", &apiError{status: 405, message: "Rebase merges are not allowed on this repository.", kind: "UNPROCESSABLE"}
	}
	message := cmp.Or(v.Title, title) + "\n\n" + cmp.Or(v.Message, i.title)
	commit, err := g.commitTree(c.ctx, tree, signatureOf(c.author(c.caller)), message, parents...)
	if err != nil {
		return "", err
	}
	c.repo = i.repo
	if err := c.moved(p.base, commit, base); err != nil {
		return "", err
	}
	now := c.now()
	p.merged, i.closed, p.mergedBy, p.mergeCommit, p.baseSHA, i.updated = &now, &now, c.author(c.caller), commit, base, now
	return commit, nil
}

// mayMerge refuses a merge that changes workflow files without the permission.
func (c *call) mayMerge(g gitDir, base, head string) error {
	if c.caller.token.Permissions.has("workflows", "write") {
		return nil
	}
	files, err := g.diff(c.ctx, base, head)
	for _, f := range files {
		if isWorkflow(f.path) {
			return &apiError{status: 403, message: workflowRefusal(f.path), kind: "FORBIDDEN"}
		}
	}
	return err
}
