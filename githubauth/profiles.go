package githubauth

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

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
		return Profile{}, fmt.Errorf("there is no GitHub profile %q; there are %s", clean(name), strings.Join(ps.Names(), ", "))
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
