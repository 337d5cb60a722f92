package github

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Branches of acme/app. Feature left main mainCommits-featureDepth commits ago.
const (
	mainBranch    = "main"
	featureBranch = "feature"
	mainCommits   = 12
	featureBase   = 5 // the commit of main that feature left
	featureOwn    = 3
)

// seedTime is when all that was there at the start was made.
var seedTime = time.Date(2026, 1, 5, 12, 0, 0, 0, time.UTC)

// A seedRepo is one repository of the start.
type seedRepo struct {
	owner, name, description string
	private                  bool
}

// seedRepos: acme chose the first three for the App, solo installed it for all of its
// own, other did not install it.
var seedRepos = []seedRepo{
	{"acme", "app", "The application", true},
	{"acme", "lib", "A library of acme's", true},
	{"acme", "site", "acme's public pages", false},
	{"acme", "vault", "Not for the App", true},
	{"solo", "notes", "Notes of one person", true},
	{"other", "hidden", "Of an owner without the App", true},
	{"other", "open", "Public, of an owner without the App", false},
}

// soloPermissions are what solo has accepted: fewer than the App asks for by now.
var soloPermissions = permissions{"contents": "write", "issues": "write", "metadata": "read", "pull_requests": "write"}

// seed makes the accounts, the repositories and the installations.
func (s *Server) seed(ctx context.Context, sub Submodule) error {
	w := &s.world
	w.lastID = 1000
	for _, a := range []account{
		{login: "acme", kind: organization}, {login: "solo", kind: user}, {login: "other", kind: organization},
		{login: "mona", kind: user}, {id: botID, login: Slug + "[bot]", kind: bot},
	} {
		if a.id == 0 {
			a.id = w.id()
		}
		w.accounts = append(w.accounts, &a)
	}
	for _, one := range seedRepos {
		r := &repository{
			id: w.id(), owner: w.account(one.owner), name: one.name, private: one.private, description: one.description,
			defaultBranch: mainBranch, hasIssues: true, created: seedTime, pushed: seedTime,
			git: gitDir(filepath.Join(s.dir, one.owner, one.name+".git")),
		}
		for _, name := range []string{"bug", "enhancement"} {
			r.labels = append(r.labels, &label{id: w.id(), name: name, color: "d73a4a"})
		}
		if err := r.create(ctx, sub); err != nil {
			return fmt.Errorf("%s: %w", r.fullName(), err)
		}
		w.repos = append(w.repos, r)
		if err := w.fill(ctx, r); err != nil {
			return fmt.Errorf("%s: %w", r.fullName(), err)
		}
	}
	acme, solo := w.account("acme"), w.account("solo")
	s.installs = []*installation{
		{id: 51001, account: acme, repos: w.ownedBy(acme)[:3], permissions: appPermissions, created: seedTime},
		{id: 51002, account: solo, permissions: soloPermissions, created: seedTime},
	}
	return nil
}

// fill opens an issue, and where there is a feature branch its pull request.
func (w *world) fill(ctx context.Context, r *repository) error {
	mona := w.account("mona")
	w.open(r, mona, "The last line is dropped", "A file without a newline at its end loses its last line.", nil, seedTime)
	head := r.git.branch(ctx, featureBranch)
	if head == "" {
		return nil
	}
	p := &pull{base: mainBranch, head: featureBranch, headSHA: head, baseSHA: r.git.branch(ctx, mainBranch)}
	w.open(r, mona, "Add a feature", "It is small.", p, seedTime)
	return r.git.setRef(ctx, "refs/pull/2/head", head, "")
}

// gitConfig is each repository's. serveGit decides who may push.
const gitConfig = `[http]
	receivepack = true
[receive]
	hideRefs = refs/pull
[uploadpack]
	allowFilter = true
	allowReachableSHA1InWant = true
[gc]
	auto = 0
`

// create makes the repository's commits, the same at each start.
func (r *repository) create(ctx context.Context, sub Submodule) error {
	if err := os.MkdirAll(string(r.git), 0o755); err != nil {
		return err
	}
	if _, err := r.git.run(ctx, "", nil, "init", "-q", "--bare", "-b", mainBranch); err != nil {
		return err
	}
	config, err := os.OpenFile(filepath.Join(string(r.git), "config"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = config.WriteString(gitConfig)
	if err := errors.Join(err, config.Close()); err != nil {
		return err
	}
	_, err = r.git.run(ctx, r.history(sub), nil, "fast-import", "--quiet")
	return err
}

// history is the repository's commits as git fast-import takes them.
func (r *repository) history(sub Submodule) string {
	var h history
	h.commit(mainBranch, 0, "say what this is", file("README.md", "# "+r.name+"\n\n"+r.description+".\n"))
	if r.fullName() != "acme/app" {
		return h.text.String()
	}
	h.commit(mainBranch, 1, "build each push", file(".github/workflows/ci.yml", "on: push\njobs: {}\n"))
	for n := 3; n <= mainCommits-1; n++ {
		h.commit(mainBranch, n-1, fmt.Sprintf("count to %d", n), file("count.txt", fmt.Sprintln(n)))
	}
	last := []string{file("LICENSE", "Do with it what you like.\n")}
	if sub.URL != "" {
		last = append(last, file(".gitmodules", fmt.Sprintf("[submodule \"hello\"]\n\tpath = vendor/hello\n\turl = %s\n", sub.URL)),
			"M 160000 "+sub.Commit+" vendor/hello\n")
	}
	h.commit(mainBranch, mainCommits-1, "take in what others made", last...)
	from := featureBase
	for n := 1; n <= featureOwn; n++ {
		h.commit(featureBranch, from, fmt.Sprintf("feature, part %d", n), file(fmt.Sprintf("feature/%d.txt", n), "done\n"))
		from = mainCommits + n
	}
	return h.text.String()
}

// A history is a stream of commits; each commit's mark is its number from 1.
type history struct {
	text  strings.Builder
	marks int
}

func file(path, content string) string {
	return fmt.Sprintf("M 100644 inline %s\ndata %d\n%s\n", path, len(content), content)
}

func (h *history) commit(branch string, parent int, message string, changes ...string) {
	h.marks++
	when := seedTime.Add(time.Duration(h.marks-100) * time.Hour).Unix()
	fmt.Fprintf(&h.text, "commit refs/heads/%s\nmark :%d\ncommitter mona <mona@%s> %d +0000\ndata %d\n%s\n",
		branch, h.marks, Host, when, len(message), message)
	if parent > 0 {
		fmt.Fprintf(&h.text, "from :%d\n", parent)
	}
	h.text.WriteString(strings.Join(changes, ""))
	h.text.WriteString("\n")
}
