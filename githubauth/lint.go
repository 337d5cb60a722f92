package githubauth

import (
	"fmt"
	"regexp"
	"slices"
)

// A Finding is what is legal in a file of profiles and probably not meant.
type Finding struct {
	Profile string
	File    string // "" for a built-in profile without a file
	Line    int    // of the profile; 0 where it is not in the file
	Problem string
}

// String is "file:line: profiles.name: problem".
func (f Finding) String() string {
	text := "profiles." + f.Profile + ": " + f.Problem
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

// Lint lists what is legal and probably not meant, in the order of the profiles'
// lines, those that are built in first.
func (ps *Profiles) Lint() []Finding {
	if ps == nil {
		return nil
	}
	var all []Finding
	for name, p := range ps.byName {
		for _, problem := range p.lint(ps.ceiling) {
			all = append(all, Finding{Profile: name, File: ps.file, Line: ps.lines[name], Problem: problem})
		}
	}
	slices.SortStableFunc(all, func(a, b Finding) int {
		if a.Line != b.Line {
			return a.Line - b.Line
		}
		if a.Profile < b.Profile {
			return -1
		} else if a.Profile > b.Profile {
			return 1
		}
		return 0
	})
	return all
}

func (p Profile) lint(ceiling Permissions) (problems []string) {
	if err := p.Permissions.Within(ceiling); err != nil {
		problems = append(problems, fmt.Sprintf("is switched off: %v", err))
	}
	for _, name := range p.Permissions.names() {
		known := knownPermissions[name]
		if known.reach != ofRepository {
			problems = append(problems, fmt.Sprintf("%s reaches the whole %s, whatever repositories a run names", name, known.reach))
		} else if known.risk != "" && p.Permissions[name] != Read {
			problems = append(problems, fmt.Sprintf("%s: %s: whoever has it %s", name, p.Permissions[name], known.risk))
		}
	}
	if p.AllowMcpAppAuth {
		if !p.Permissions.Writes() {
			problems = append(problems, "writes nothing, yet a run may ask for the App's private key, with which it can do all that the App can")
		}
		if !tellsOfKey.MatchString(p.Description) {
			problems = append(problems, "a run may ask for the App's private key, with which it can do all that the App can, and the description does not say so")
		}
	}
	return problems
}
