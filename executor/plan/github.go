package plan

import (
	"fmt"
	"slices"
	"strings"
	"unicode"

	"sallyport/executor/api"
	"sallyport/githubauth/scope"
)

// A GitHubService is what the executor offers of GitHub.
type GitHubService struct {
	Profiles *scope.Profiles
	// Offered are those of them that a request may name; if nil, all.
	Offered []string
	// AllowKey is the service's ceiling for the App's private key: without it no run
	// gets the key, whatever its profile says.
	AllowKey bool
}

// Names are the profiles that a request may name.
func (g *GitHubService) Names() []string {
	if g.Offered != nil {
		return g.Offered
	}
	return g.Profiles.Names()
}

// GitHub is what one run may do on GitHub.
type GitHub struct {
	Grant scope.Grant
	// Key says that the App's private key goes in.
	Key bool
	// Repo is the repository to check out, Branch the branch; empty for neither.
	Repo, Branch, Base string
	Shallow            bool
}

const maxRunIDLength = 256

func (s *Service) judgeGitHub(p *Plan) *api.Problem {
	a := p.Request.Opts.GithubAccess
	if a == nil {
		return nil
	}
	for _, f := range [][2]string{{"owner", a.Owner}, {"profile", a.Profile}} {
		if f[1] == "" {
			return unacceptable("opts.githubAccess."+f[0], "opts.githubAccess.%s is required", f[0])
		}
	}
	profile, ok := s.GitHub.Profiles.Get(a.Profile)
	if names := s.GitHub.Names(); !ok || !slices.Contains(names, a.Profile) {
		return unknownValue("opts.githubAccess.profile", a.Profile, names)
	}
	if problem := s.judgeKey(a, profile); problem != nil {
		return problem
	}
	grant, err := s.GitHub.Profiles.NewGrant(a.Profile, a.Owner, repositories(a))
	if err != nil {
		return unacceptable("opts.githubAccess", "opts.githubAccess: %v", err)
	}
	p.GitHub = &GitHub{Grant: grant, Key: a.AllowMcpAppAuth, Repo: a.Repo}
	if len(a.RunID) > maxRunIDLength || strings.ContainsFunc(a.RunID, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return unacceptable("opts.githubAccess.runId", "opts.githubAccess.runId must have at most %d bytes, all printable", maxRunIDLength)
	}
	return judgeCheckout(p.GitHub, a)
}

// repositories are those that the token is for: the one that the run is about is
// always among them.
func repositories(a *api.GithubAccess) []string {
	all := slices.Clone(a.Repositories)
	if a.Repo != "" && !slices.ContainsFunc(all, func(r string) bool { return strings.EqualFold(r, a.Repo) }) {
		all = append([]string{a.Repo}, all...)
	}
	return all
}

// judgeKey holds a wish for the App's private key to profile and service. There
// is no third way to it.
func (s *Service) judgeKey(a *api.GithubAccess, profile scope.Profile) *api.Problem {
	const field = "opts.githubAccess.allowMcpAppAuth"
	switch {
	case !a.AllowMcpAppAuth:
		return nil
	case !profile.AllowMcpAppAuth:
		return denied(field, "allowMcpAppAuth", fmt.Sprintf("the profile %.64q does not allow the App's private key; leave %s out", a.Profile, field))
	case !s.GitHub.AllowKey:
		return denied(field, "allowMcpAppAuth", "this executor gives the App's private key to nobody; leave "+field+" out")
	}
	return nil
}

func judgeCheckout(g *GitHub, a *api.GithubAccess) *api.Problem {
	for _, f := range [][2]string{{"prePopulateBranch", a.PrePopulateBranch}, {"baseBranch", a.BaseBranch}} {
		if f[1] != "" && !validBranch(f[1]) {
			return unacceptable("opts.githubAccess."+f[0], "opts.githubAccess.%s: %.64q is no name that git has for a branch", f[0], f[1])
		}
	}
	if a.PrePopulateBranch == "" {
		return nil
	}
	if g.Repo == "" && len(g.Grant.Repositories) == 1 {
		g.Repo = g.Grant.Repositories[0]
	}
	if g.Repo == "" {
		return unacceptable("opts.githubAccess.repo", "opts.githubAccess.repo is required: it says which of the repositories prePopulateBranch is in")
	}
	g.Branch, g.Base, g.Shallow = a.PrePopulateBranch, a.BaseBranch, a.Shallow
	return nil
}

const maxBranch = 255 // bytes

// validBranch holds a name to git-check-ref-format(1), as for a branch.
func validBranch(name string) bool {
	if len(name) > maxBranch || strings.HasPrefix(name, "-") || name == "HEAD" || name == "@" ||
		strings.Contains(name, "..") || strings.Contains(name, "@{") || strings.HasSuffix(name, ".") ||
		strings.ContainsFunc(name, func(r rune) bool {
			return r <= ' ' || r == 0x7f || strings.ContainsRune(`~^:?*[\`, r) || !unicode.IsPrint(r)
		}) {
		return false
	}
	for part := range strings.SplitSeq(name, "/") {
		if part == "" || strings.HasPrefix(part, ".") || strings.HasSuffix(part, ".lock") {
			return false
		}
	}
	return true
}
