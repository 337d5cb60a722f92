package github

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Words for what an account is.
const (
	organization = "Organization"
	user         = "User"
	bot          = "Bot"
)

// An account owns repositories or writes things.
type account struct {
	id    int64
	login string
	kind  string // organization, user or bot
}

// A repository and everything in it but its commits.
type repository struct {
	id            int64
	owner         *account
	name          string
	private       bool
	description   string
	homepage      string
	defaultBranch string
	hasIssues     bool
	hasWiki       bool
	archived      bool
	deleteMerged  bool
	created       time.Time
	pushed        time.Time
	issues        []*issue // pull requests, too; issue n is at n-1
	labels        []*label
	releases      []*release
	git           gitDir
}

func (r *repository) fullName() string { return r.owner.login + "/" + r.name }

// issue returns issue or pull request n, or nil.
func (r *repository) issue(n int) *issue {
	if n < 1 || n > len(r.issues) {
		return nil
	}
	return r.issues[n-1]
}

type label struct {
	id                       int64
	name, color, description string
}

// An issue; with pull it is a pull request.
type issue struct {
	id                  int64
	repo                *repository
	number              int
	title, body, reason string
	author              *account
	closed              *time.Time
	created, updated    time.Time
	labels              []*label
	assignees           []*account
	comments            []*comment
	pull                *pull
}

func (i *issue) state() string {
	switch {
	case i.pull != nil && i.pull.merged != nil:
		return "MERGED"
	case i.closed != nil:
		return "CLOSED"
	}
	return "OPEN"
}

// url is the issue's page.
func (i *issue) url() string {
	word := "issues"
	if i.pull != nil {
		word = "pull"
	}
	return fmt.Sprintf("https://%s/%s/%s/%d", Host, i.repo.fullName(), word, i.number)
}

// A pull is what a pull request has beyond an issue. Head and base are branches
// of the same repository.
type pull struct {
	base, head  string
	headSHA     string // of the last push while it was open
	baseSHA     string
	draft       bool
	merged      *time.Time
	mergedBy    *account
	mergeCommit string
	reviews     []*review
}

type comment struct {
	id      int64
	issue   *issue
	author  *account
	body    string
	created time.Time
}

func (c *comment) url() string { return fmt.Sprintf("%s#issuecomment-%d", c.issue.url(), c.id) }

// A review's state is APPROVED, CHANGES_REQUESTED, COMMENTED, PENDING or DISMISSED.
type review struct {
	id      int64
	issue   *issue
	author  *account
	body    string
	state   string
	commit  string
	created time.Time
}

func (r *review) url() string { return fmt.Sprintf("%s#pullrequestreview-%d", r.issue.url(), r.id) }

type release struct {
	id                int64
	author            *account
	tag, name, body   string
	draft, prerelease bool
	created           time.Time
	targetCommitish   string
}

// A world is all accounts and repositories.
type world struct {
	accounts []*account
	repos    []*repository
	lastID   int64
}

// id is a new number, of anything.
func (w *world) id() int64 {
	w.lastID++
	return w.lastID
}

// account finds an account; names do not depend on case.
func (w *world) account(login string) *account {
	for _, a := range w.accounts {
		if strings.EqualFold(a.login, login) {
			return a
		}
	}
	return nil
}

// repo finds a repository, or nil.
func (w *world) repo(owner, name string) *repository {
	for _, r := range w.repos {
		if strings.EqualFold(r.owner.login, owner) && strings.EqualFold(r.name, name) {
			return r
		}
	}
	return nil
}

func (w *world) ownedBy(a *account) []*repository {
	owned := []*repository{}
	for _, r := range w.repos {
		if r.owner == a {
			owned = append(owned, r)
		}
	}
	return owned
}

// open adds an issue, or a pull request.
func (w *world) open(r *repository, by *account, title, body string, p *pull, now time.Time) *issue {
	i := &issue{id: w.id(), repo: r, number: len(r.issues) + 1, title: title, body: body, author: by,
		created: now, updated: now, pull: p}
	r.issues = append(r.issues, i)
	return i
}

func (w *world) comment(i *issue, by *account, body string, now time.Time) *comment {
	c := &comment{id: w.id(), issue: i, author: by, body: body, created: now}
	i.comments, i.updated = append(i.comments, c), now
	return c
}

// review adds a review, as GitHub allows: nobody judges their own.
func (w *world) review(i *issue, by *account, event, body string, now time.Time) (*review, error) {
	state := map[string]string{"APPROVE": "APPROVED", "REQUEST_CHANGES": "CHANGES_REQUESTED", "COMMENT": "COMMENTED", "": "PENDING"}[event]
	switch {
	case state == "":
		return nil, unprocessable("Variable $event of type PullRequestReviewEvent was provided invalid value")
	case by == i.author && state == "APPROVED":
		return nil, unprocessable("Review Can not approve your own pull request")
	case by == i.author && state == "CHANGES_REQUESTED":
		return nil, unprocessable("Review Can not request changes on your own pull request")
	case body == "" && (state == "CHANGES_REQUESTED" || state == "COMMENTED"):
		return nil, unprocessable("Review Body can't be blank")
	}
	r := &review{id: w.id(), issue: i, author: by, body: body, state: state, commit: i.pull.headSHA, created: now}
	i.pull.reviews, i.updated = append(i.pull.reviews, r), now
	return r, nil
}

// label finds or makes the labels of an issue.
func (w *world) label(i *issue, names []string) {
	for _, name := range names {
		at := slices.IndexFunc(i.repo.labels, func(l *label) bool { return strings.EqualFold(l.name, name) })
		if at < 0 {
			at = len(i.repo.labels)
			i.repo.labels = append(i.repo.labels, &label{id: w.id(), name: name, color: "ededed"})
		}
		if l := i.repo.labels[at]; !slices.Contains(i.labels, l) {
			i.labels = append(i.labels, l)
		}
	}
}
