package main

import (
	"fmt"
	"strings"

	"github.com/spf13/pflag"

	"sallyport/executor/api"
)

// gitHubOptions are the flags of the command run that are about GitHub.
type gitHubOptions struct {
	repos   []string
	profile string
	branch  string
	base    string
	shallow bool
}

func (o *gitHubOptions) flags(f *pflag.FlagSet) {
	f.StringSliceVar(&o.repos, "repo", nil, "repository on GitHub that the run may use, as OWNER/NAME; may be repeated, the first is what the run is about")
	f.StringVar(&o.profile, "profile", "", "what the run may do there: read, issues-write, review-write, repo-write, or one of the operator's")
	f.StringVar(&o.branch, "branch", "", "branch of the first --repo to check out before the agent starts")
	f.StringVar(&o.base, "base", "", "branch that --branch leaves, or starts from")
	f.BoolVar(&o.shallow, "shallow", false, "check out the newest commit only")
}

// access is what the flags ask for, or nil for nothing.
func (o gitHubOptions) access() (*api.GithubAccess, error) {
	switch {
	case len(o.repos) == 0 && o.profile == "" && o.branch == "" && o.base == "" && !o.shallow:
		return nil, nil
	case len(o.repos) == 0:
		return nil, usage("--repo OWNER/NAME is missing: it says which repository on GitHub is meant")
	case o.profile == "":
		return nil, usage("--profile is missing: it says what the run may do with %s", o.repos[0])
	case o.branch == "" && (o.base != "" || o.shallow):
		return nil, usage("--base and --shallow go with --branch, which says what to check out")
	}
	a := &api.GithubAccess{Profile: o.profile, PrePopulateBranch: o.branch, BaseBranch: o.base, Shallow: o.shallow}
	for i, repo := range o.repos {
		owner, name, ok := strings.Cut(repo, "/")
		switch {
		case !ok || owner == "" || name == "" || strings.Contains(name, "/"):
			return nil, usage("--repo %q is not OWNER/NAME", repo)
		case i == 0:
			a.Owner, a.Repo = owner, name
		case !strings.EqualFold(owner, a.Owner):
			return nil, usage("--repo %q has another owner than %q; a run's token is for one owner's repositories", repo, o.repos[0])
		}
		a.Repositories = append(a.Repositories, name)
	}
	return a, nil
}

// gitHubText is one line on what a run could do on GitHub.
func gitHubText(g *api.GithubReceipt) string {
	parts := []string{fmt.Sprintf("GitHub: profile %s on %s/{%s}", g.Profile, g.Owner, strings.Join(g.Repositories, ","))}
	if !g.Downscoped {
		parts = append(parts, "by a static token, which NOTHING NARROWS")
	}
	if g.Refreshed > 0 {
		parts = append(parts, fmt.Sprintf("%d fresh tokens", g.Refreshed))
	}
	if g.Checkout != "" {
		parts = append(parts, "checkout "+g.Checkout)
	}
	if g.AppKey {
		parts = append(parts, "with the App's PRIVATE KEY in the sandbox")
	}
	switch {
	case g.Revoked:
		parts = append(parts, "revoked")
	case g.RevokeError != "":
		parts = append(parts, "NOT REVOKED yet: "+g.RevokeError)
	}
	return strings.Join(parts, ", ") + "."
}
