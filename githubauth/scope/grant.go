package scope

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"sallyport/githubauth/plain"
)

// maxRepositories is how many repositories one token can be limited to (GitHub's
// REST reference, "Create an installation access token for an app").
const maxRepositories = 500

var (
	// ownerForm admits the logins of users and organizations, and those of
	// enterprise-managed users, which have an underscore.
	ownerForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]{0,99}$`)
	repoForm  = regexp.MustCompile(`^[A-Za-z0-9._-]{1,100}$`)
)

// A Grant is what one run asked for, judged. [Profiles.NewGrant] makes it; one that
// was put together otherwise, as the zero Grant, cannot be minted.
type Grant struct {
	Owner        string
	Repositories []string // names without the owner, at least one
	Profile      Profile

	ceiling Permissions // of the file that the profile is from
}

// NewGrant judges what a run asks for: a profile by its name, which must be within
// the ceiling, and one or more repositories of one owner.
func (ps *Profiles) NewGrant(profile, owner string, repositories []string) (Grant, error) {
	p, err := ps.lookup(profile)
	if err != nil {
		return Grant{}, err
	}
	g := Grant{Owner: owner, Repositories: slices.Clone(repositories), Profile: p, ceiling: maps.Clone(ps.ceiling)}
	if err := g.Check(); err != nil {
		return Grant{}, err
	}
	return g, nil
}

// Check holds g to what a mint needs, whoever made it.
func (g Grant) Check() error {
	if g.ceiling == nil {
		return errors.New("the grant was not judged: it comes from no profiles")
	}
	if !ownerForm.MatchString(g.Owner) {
		return fmt.Errorf("%q is not the name of a GitHub user or organization", plain.Line(g.Owner))
	}
	if err := checkRepositories(g.Repositories); err != nil {
		return err
	}
	if len(g.Profile.Permissions) == 0 {
		return fmt.Errorf("profile %q has no permissions, which GitHub would take for all of them", plain.Line(g.Profile.Name))
	}
	if err := g.Profile.Permissions.Within(g.ceiling); err != nil {
		return fmt.Errorf("profile %q: %w", plain.Line(g.Profile.Name), err)
	}
	return nil
}

func checkRepositories(names []string) error {
	switch {
	case len(names) == 0:
		return errors.New("no repository is named, which GitHub would take for all of the installation")
	case len(names) > maxRepositories:
		return fmt.Errorf("%d repositories: one token can have at most %d", len(names), maxRepositories)
	}
	seen := make(map[string]bool, len(names))
	for _, name := range names {
		lower := strings.ToLower(name)
		switch {
		case strings.Contains(name, "/"):
			return fmt.Errorf("repository %q: write its name without the owner", plain.Line(name))
		case !repoForm.MatchString(name) || name == "." || name == ".." || strings.HasSuffix(lower, ".git"):
			return fmt.Errorf("%q is not the name of a GitHub repository", plain.Line(name))
		case seen[lower]:
			return fmt.Errorf("repository %q is named twice", name)
		}
		seen[lower] = true
	}
	return nil
}
