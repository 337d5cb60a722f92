package github

import (
	"cmp"
	"net/http"
	"slices"
	"strings"
)

// Issues and pull requests share numbers, comments and labels.
const (
	readEither  = "issues=read; pull_requests=read"
	writeEither = "issues=write; pull_requests=write"
)

var issueRoutes = []route{
	{pattern: "GET /repos/{owner}/{repo}/issues", need: needs("issues=read"), serve: (*call).listIssues},
	{pattern: "POST /repos/{owner}/{repo}/issues", need: needs("issues=write"), serve: (*call).createIssue},
	{pattern: "GET /repos/{owner}/{repo}/issues/{number}", need: needs(readEither), serve: (*call).getIssue},
	{pattern: "PATCH /repos/{owner}/{repo}/issues/{number}", need: needs(writeEither), serve: (*call).editIssue},
	{pattern: "GET /repos/{owner}/{repo}/issues/{number}/comments", need: needs(readEither), serve: (*call).listComments},
	{pattern: "POST /repos/{owner}/{repo}/issues/{number}/comments", need: needs(writeEither), serve: (*call).createComment},
	{pattern: "POST /repos/{owner}/{repo}/issues/{number}/labels", need: needs(writeEither), serve: (*call).addLabels},
	{pattern: "GET /repos/{owner}/{repo}/labels", need: needs(readEither), serve: (*call).listLabels},
	{pattern: "POST /repos/{owner}/{repo}/labels", need: needs(writeEither), serve: (*call).createLabel},
}

// listed says whether ?state= asks for it; open ones are what is asked for without.
func (c *call) listed(i *issue) bool {
	want := cmp.Or(c.r.FormValue("state"), "open")
	return want == "all" || want == restState(i)
}

func (c *call) listIssues() (int, any, error) {
	found := slices.DeleteFunc(newest(c.repo.issues), func(i *issue) bool { return !c.listed(i) })
	return http.StatusOK, each(page(c, found), viewIssue), nil
}

// An issueEdit is what issues and pull requests take alike.
type issueEdit struct {
	Title  *string
	Body   *string
	State  *string
	Reason string `json:"state_reason"`
	Labels []string
	Base   *string // of a pull request alone
}

func (c *call) createIssue() (int, any, error) {
	var v issueEdit
	if err := c.read(&v); err != nil {
		return 0, nil, err
	}
	if v.Title == nil || strings.TrimSpace(*v.Title) == "" {
		return 0, nil, missing("Issue", "title")
	}
	if !c.repo.hasIssues {
		return 0, nil, &apiError{status: 410, message: "Issues has been disabled in this repository."}
	}
	body := ""
	set(&body, v.Body)
	i := c.world.open(c.repo, c.author(c.caller), *v.Title, body, nil, c.now())
	c.world.label(i, v.Labels)
	return http.StatusCreated, viewIssue(i), nil
}

func (c *call) getIssue() (int, any, error) {
	if err := c.mayRead(c.issue); err != nil {
		return 0, nil, err
	}
	return http.StatusOK, viewIssue(c.issue), nil
}

// mayRead and mayWrite judge an issue as an issue and a pull request as that, but for
// what GitHub allows with either permission.
func (c *call) mayRead(i *issue) error { return c.caller.check(i.repo, readNeed(i)) }

func readNeed(i *issue) need {
	if i.pull != nil {
		return needs(readEither)
	}
	return needs("issues=read")
}

func writeNeed(i *issue) need {
	if i.pull != nil {
		return needs(writeEither)
	}
	return needs("issues=write")
}

func (c *call) editIssue() (int, any, error) {
	var v issueEdit
	if err := c.read(&v); err != nil {
		return 0, nil, err
	}
	if err := c.caller.check(c.repo, writeNeed(c.issue)); err != nil {
		return 0, nil, err
	}
	set(&c.issue.title, v.Title)
	set(&c.issue.body, v.Body)
	if v.State != nil {
		if err := c.close(c.issue, *v.State == "closed", v.Reason); err != nil {
			return 0, nil, err
		}
	}
	c.world.label(c.issue, v.Labels)
	c.issue.updated = c.now()
	return http.StatusOK, viewIssue(c.issue), nil
}

// close closes or reopens.
func (s *Server) close(i *issue, closed bool, reason string) error {
	if i.state() == "MERGED" {
		return invalid("Issue", "state", "", "The pull request is merged and cannot change its state.")
	}
	i.updated = s.now()
	if i.closed, i.reason = nil, ""; closed {
		now := s.now()
		i.closed, i.reason = &now, cmp.Or(strings.ToLower(reason), "completed")
	}
	return nil
}

func (c *call) listComments() (int, any, error) {
	if err := c.mayRead(c.issue); err != nil {
		return 0, nil, err
	}
	return http.StatusOK, each(page(c, c.issue.comments), viewComment), nil
}

func (c *call) createComment() (int, any, error) {
	var v struct{ Body string }
	if err := c.read(&v); err != nil {
		return 0, nil, err
	}
	if err := c.caller.check(c.repo, writeNeed(c.issue)); err != nil {
		return 0, nil, err
	}
	if strings.TrimSpace(v.Body) == "" {
		return 0, nil, missing("IssueComment", "body")
	}
	return http.StatusCreated, viewComment(c.world.comment(c.issue, c.author(c.caller), v.Body, c.now())), nil
}

func (c *call) addLabels() (int, any, error) {
	var v struct{ Labels []string }
	if err := c.read(&v); err != nil {
		return 0, nil, err
	}
	if err := c.caller.check(c.repo, writeNeed(c.issue)); err != nil {
		return 0, nil, err
	}
	c.world.label(c.issue, v.Labels)
	return http.StatusOK, each(c.issue.labels, viewLabel), nil
}

func (c *call) listLabels() (int, any, error) {
	return http.StatusOK, each(page(c, c.repo.labels), viewLabel), nil
}

func (c *call) createLabel() (int, any, error) {
	var v struct{ Name, Color, Description string }
	if err := c.read(&v); err != nil {
		return 0, nil, err
	}
	if v.Name == "" {
		return 0, nil, missing("Label", "name")
	}
	if slices.ContainsFunc(c.repo.labels, func(l *label) bool { return strings.EqualFold(l.name, v.Name) }) {
		return 0, nil, invalid("Label", "name", "already_exists", "")
	}
	l := &label{id: c.world.id(), name: v.Name, color: cmp.Or(v.Color, "ededed"), description: v.Description}
	c.repo.labels = append(c.repo.labels, l)
	return http.StatusCreated, viewLabel(l), nil
}
