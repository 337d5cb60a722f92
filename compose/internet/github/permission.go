package github

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// permissions are what a token may do, by GitHub's names: read, write or admin.
type permissions map[string]string

// levels orders what a permission may be.
var levels = map[string]int{"": 0, "read": 1, "write": 2, "admin": 3}

// known are the permissions of a repository that an App may ask for, and the
// highest level of each.
// https://docs.github.com/rest/apps/apps#create-an-installation-access-token-for-an-app
var known = map[string]string{
	"actions": "write", "administration": "write", "checks": "write", "codespaces": "write",
	"contents": "write", "dependabot_secrets": "write", "deployments": "write", "environments": "write",
	"issues": "write", "metadata": "read", "packages": "write", "pages": "write", "pull_requests": "write",
	"repository_custom_properties": "write", "repository_hooks": "write", "repository_projects": "admin",
	"secret_scanning_alerts": "write", "secrets": "write", "security_events": "write", "single_file": "write",
	"statuses": "write", "vulnerability_alerts": "write", "workflows": "write",
	"members": "write", "organization_administration": "write", "organization_hooks": "write",
	"organization_plan": "read", "organization_projects": "admin", "organization_secrets": "write",
	"organization_self_hosted_runners": "write", "organization_user_blocking": "write",
}

// has says whether the permission is there at the level or above.
func (p permissions) has(name, level string) bool { return levels[p[name]] >= levels[level] }

// validate judges the names and levels of a request.
func (p permissions) validate() error {
	for _, name := range slices.Sorted(maps.Keys(p)) {
		highest, ok := known[name]
		if !ok {
			return unprocessable("Invalid request.\n\nNo subschema in \"anyOf\" matched.\n%q is not a permitted key.", name)
		}
		if l := levels[p[name]]; l == 0 || l > levels[highest] {
			return unprocessable("Invalid request.\n\n%q is not a possible value for %q.", p[name], name)
		}
	}
	return nil
}

// within says whether none is wider than in the other.
func (p permissions) within(other permissions) bool {
	for name, level := range p {
		if !other.has(name, level) {
			return false
		}
	}
	return true
}

// A need is what an operation takes: alternatives of permissions that must all
// be there. The zero value takes none.
type need [][]grant

type grant struct{ name, level string }

// needs parses "issues=write; pull_requests=write" and "contents=write,workflows=write",
// the form of the header x-accepted-github-permissions. It is for constants.
func needs(text string) need {
	var n need
	for alternative := range strings.SplitSeq(text, ";") {
		var all []grant
		for one := range strings.SplitSeq(alternative, ",") {
			name, level, ok := strings.Cut(strings.TrimSpace(one), "=")
			if !ok || known[name] == "" {
				panic(fmt.Sprintf("github: not a permission: %q", one))
			}
			all = append(all, grant{name, level})
		}
		n = append(n, all)
	}
	return n
}

// String is the form that needs parses.
func (n need) String() string {
	var alternatives []string
	for _, all := range n {
		var one []string
		for _, g := range all {
			one = append(one, g.name+"="+g.level)
		}
		alternatives = append(alternatives, strings.Join(one, ","))
	}
	return strings.Join(alternatives, "; ")
}

// metBy says whether one of the alternatives is there.
func (n need) metBy(p permissions) bool {
	for _, all := range n {
		if !slices.ContainsFunc(all, func(g grant) bool { return !p.has(g.name, g.level) }) {
			return true
		}
	}
	return len(n) == 0
}

// reads says whether the operation only reads.
func (n need) reads() bool {
	for _, all := range n {
		if slices.ContainsFunc(all, func(g grant) bool { return g.level != "read" }) {
			return false
		}
	}
	return true
}

// check judges an operation on a repository: 404 for what the caller cannot see, 403
// for what its permissions do not cover. What is public anybody may read. s.mu must be held.
func (c caller) check(r *repository, n need) error {
	covered := c.token.covers(r)
	if r == nil || r.private && !covered {
		return notFound()
	}
	if !r.private && n.reads() {
		return nil
	}
	if c.token == nil {
		return &apiError{status: 401, message: "Requires authentication", kind: "FORBIDDEN"}
	}
	if !covered || !n.metBy(c.token.Permissions) {
		return forbidden()
	}
	return nil
}
