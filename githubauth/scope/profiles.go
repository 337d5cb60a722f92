// Package scope is what a run may do on GitHub: permissions, profiles of them under a
// ceiling, built in or from an operator's file, and the grant that is made of what one run
// asks for. It knows what GitHub's permissions reach, and asks GitHub nothing.
package scope

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"sallyport/githubauth/plain"
)

// A Profile names what a run may do on GitHub.
type Profile struct {
	Name        string
	Description string
	Permissions Permissions
	// AllowMcpAppAuth says that a run with this profile may ask for the App's
	// private key itself. It gets it only where the service allows that, too.
	AllowMcpAppAuth bool
}

func (p Profile) clone() Profile {
	p.Permissions = maps.Clone(p.Permissions)
	return p
}

// Builtin returns the profiles that are always there, the narrowest first.
func Builtin() []Profile {
	return []Profile{
		{
			Name:        "read",
			Description: "reads code, issues and pull requests",
			Permissions: Permissions{"contents": Read, "issues": Read, "pull_requests": Read, "metadata": Read},
		},
		{
			Name:        "issues-write",
			Description: "reads code and pull requests, opens and answers issues",
			Permissions: Permissions{"contents": Read, "issues": Write, "pull_requests": Read, "metadata": Read},
		},
		{
			Name:        "review-write",
			Description: "reads code, answers issues, reviews pull requests",
			Permissions: Permissions{"contents": Read, "issues": Write, "pull_requests": Write, "metadata": Read},
		},
		{
			Name:            "repo-write",
			Description:     "pushes code, opens issues and pull requests; may ask for the App's private key",
			Permissions:     Permissions{"contents": Write, "issues": Write, "pull_requests": Write, "metadata": Read},
			AllowMcpAppAuth: true,
		},
	}
}

// builtinCeiling is the ceiling where the operator sets none.
func builtinCeiling() Permissions {
	ceiling := Permissions{}
	for _, p := range Builtin() {
		ceiling.union(p.Permissions)
	}
	return ceiling
}

// Profiles are the built-in profiles and those of an operator's file, under one
// ceiling. They do not change. The nil and the zero Profiles have none.
type Profiles struct {
	byName      map[string]Profile
	ceiling     Permissions
	file        string
	lines       map[string]int // of the profiles that are from the file
	ceilingLine int            // 0 where the file has none
}

// DefaultProfiles are the built-in ones, with all of them together for a ceiling.
func DefaultProfiles() *Profiles {
	ps := &Profiles{byName: make(map[string]Profile), ceiling: builtinCeiling(), lines: make(map[string]int)}
	for _, p := range Builtin() {
		ps.byName[p.Name] = p
	}
	return ps
}

// Get returns the profile called name, if a run may have it.
func (ps *Profiles) Get(name string) (Profile, bool) {
	p, err := ps.lookup(name)
	return p, err == nil
}

// lookup says why a run may not have a profile.
func (ps *Profiles) lookup(name string) (Profile, error) {
	if ps == nil || len(ps.byName) == 0 {
		return Profile{}, errors.New("there are no GitHub profiles")
	}
	p, ok := ps.byName[name]
	if !ok {
		return Profile{}, fmt.Errorf("there is no GitHub profile %q; there are %s", plain.Line(name), strings.Join(ps.Names(), ", "))
	}
	if err := p.Permissions.Within(ps.ceiling); err != nil {
		return Profile{}, fmt.Errorf("profile %q is switched off: %w", name, err)
	}
	return p.clone(), nil
}

// Names are the profiles that a run may have, sorted.
func (ps *Profiles) Names() []string {
	if ps == nil {
		return nil
	}
	var names []string
	for name, p := range ps.byName {
		if p.Permissions.Within(ps.ceiling) == nil {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// Ceiling is the most that any profile may have.
func (ps *Profiles) Ceiling() Permissions {
	if ps == nil {
		return nil
	}
	return maps.Clone(ps.ceiling)
}
