package scope

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
)

// A Finding is what is to be said about a profile or the ceiling of a file that has
// no faults.
type Finding struct {
	File    string // "" where there is no file
	Line    int    // 0 where it is not in the file
	Field   string // such as profiles.docs-write, or ceiling
	Problem string
}

// String is "file:line: field: problem".
func (f Finding) String() string {
	text := f.Field + ": " + f.Problem
	switch {
	case f.File != "" && f.Line > 0:
		return fmt.Sprintf("%s:%d: %s", f.File, f.Line, text)
	case f.File != "":
		return f.File + ": " + text
	}
	return text
}

// tellsOfKey matches a description that says that a profile may give out the key.
var tellsOfKey = regexp.MustCompile(`(?i)\b(PEM|private key|app key)\b`)

// Lint lists what is legal in a file of profiles and probably not meant, in the
// order of its lines.
func (ps *Profiles) Lint() []Finding {
	if ps == nil {
		return nil
	}
	var all []Finding
	used := Permissions{"metadata": Admin} // it is always there
	for name, p := range ps.byName {
		used.union(p.Permissions)
		if ps.lines[name] == 0 { // built in
			continue
		}
		for _, problem := range p.lint() {
			all = append(all, Finding{ps.file, ps.lines[name], wordProfiles + "." + name, problem})
		}
	}
	if wide, ok := errors.AsType[*WiderError](ps.ceiling.Within(used)); ok {
		all = append(all, Finding{ps.file, ps.ceilingLine, wordCeiling,
			fmt.Sprintf("%s: %s is more than any profile has: lower it", wide.Permission, wide.Level)})
	}
	sortFindings(all)
	return all
}

// SwitchedOff lists the built-in profiles that no run may have, because they are
// beyond the file's ceiling.
func (ps *Profiles) SwitchedOff() []Finding {
	if ps == nil {
		return nil
	}
	var all []Finding
	for name, p := range ps.byName {
		if err := p.Permissions.Within(ps.ceiling); err != nil {
			all = append(all, Finding{ps.file, ps.ceilingLine, wordProfiles + "." + name, "is switched off: " + err.Error()})
		}
	}
	sortFindings(all)
	return all
}

func sortFindings(all []Finding) {
	slices.SortStableFunc(all, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Field, b.Field))
	})
}

func (p Profile) lint() (problems []string) {
	for _, name := range p.Permissions.Names() {
		known := knownPermissions[name]
		if known.reach != ofRepository {
			problems = append(problems, fmt.Sprintf("%s reaches the whole %s, whatever repositories a run names", name, known.reach))
		} else if known.risk != "" && p.Permissions[name] != Read {
			problems = append(problems, fmt.Sprintf("%s: %s: whoever has it %s", name, p.Permissions[name], known.risk))
		}
	}
	if !p.AllowMcpAppAuth {
		return problems
	}
	if !p.Permissions.Writes() {
		problems = append(problems, "writes nothing, yet a run may ask for the App's private key, with which it can do all that the App can")
	}
	if !tellsOfKey.MatchString(p.Description) {
		problems = append(problems, "a run may ask for the App's private key, with which it can do all that the App can, and the description does not say so")
	}
	return problems
}
