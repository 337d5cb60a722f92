package githubauth

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"sallyport/githubauth/plain"
	"sallyport/githubauth/rest"
	"sallyport/githubauth/scope"
)

// minted is GitHub's answer to a request for a token.
type minted struct {
	Token        string            `json:"token"`
	ExpiresAt    time.Time         `json:"expires_at"`
	Permissions  scope.Permissions `json:"permissions"`
	Selection    string            `json:"repository_selection"`
	Repositories []struct {
		FullName string `json:"full_name"`
	} `json:"repositories"`
}

// compare refuses what is wider than g, then what is narrower.
func (m minted) compare(op string, g scope.Grant) error {
	wider := func(format string, args ...any) error {
		return &rest.Error{Op: op, Reason: rest.ReasonWiderScope, Problem: "the token that GitHub gave " + fmt.Sprintf(format, args...) +
			", which was not asked for; it was not used"}
	}
	if wide, ok := errors.AsType[*scope.WiderError](m.Permissions.Within(g.Profile.Permissions)); ok {
		return wider("has %s: %s", plain.Line(wide.Permission), plain.Line(wide.Level))
	}
	if m.Selection != "selected" && m.Selection != "" {
		return wider("is for %s repositories of the installation", plain.Line(m.Selection))
	}
	asked := make(map[string]bool)
	for _, name := range g.Repositories {
		asked[strings.ToLower(g.Owner+"/"+name)] = true
	}
	given := make(map[string]bool)
	for _, r := range m.Repositories {
		full := strings.ToLower(r.FullName)
		if !asked[full] {
			return wider("reaches the repository %s", plain.Line(r.FullName))
		}
		given[full] = true
	}
	if len(given) == 0 {
		return wider("names no repositories and so may reach all of the installation")
	}
	return m.narrower(op, g, given)
}

func (m minted) narrower(op string, g scope.Grant, given map[string]bool) error {
	lacks := func(what string) error {
		return &rest.Error{Op: op, Reason: rest.ReasonNarrowerScope, Problem: "the token that GitHub gave lacks " + what +
			", which the run needs: look at the App's installation for " + g.Owner}
	}
	for _, name := range g.Profile.Permissions.Names() {
		if asked := g.Profile.Permissions[name]; m.Permissions[name] != asked {
			return lacks(name + ": " + asked)
		}
	}
	for _, name := range g.Repositories {
		if full := g.Owner + "/" + name; !given[strings.ToLower(full)] {
			return lacks("the repository " + full)
		}
	}
	return nil
}

// names are the repositories' names without their owner, sorted.
func (m minted) names() []string {
	var names []string
	for _, r := range m.Repositories {
		_, name, _ := strings.Cut(r.FullName, "/")
		names = append(names, name)
	}
	slices.Sort(names)
	return slices.Compact(names)
}
