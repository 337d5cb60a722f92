package scope

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"sallyport/githubauth/plain"
)

// The levels of a permission. Each includes those before it.
const (
	Read  = "read"
	Write = "write"
	Admin = "admin"
)

// Permissions are GitHub's names of permissions, such as pull_requests, with the
// level of each.
type Permissions map[string]string

// rank orders levels. No level is 0, and so is a word that is none: negative, so
// that it is within nothing.
func rank(level string) int {
	switch level {
	case "":
		return 0
	case Read:
		return 1
	case Write:
		return 2
	case Admin:
		return 3
	}
	return -1
}

// A WiderError says which permission is beyond a ceiling.
type WiderError struct {
	Permission string
	Level      string
	Ceiling    string // "" where the ceiling does not have the permission
}

func (e *WiderError) Error() string {
	if e.Ceiling == "" {
		return fmt.Sprintf("%s: %s is not within the ceiling, which has no %s", plain.Line(e.Permission), plain.Line(e.Level), plain.Line(e.Permission))
	}
	return fmt.Sprintf("%s: %s is wider than the ceiling's %s", plain.Line(e.Permission), plain.Line(e.Level), plain.Line(e.Ceiling))
}

// Within reports, as a *WiderError, the first permission in alphabetical order that
// ceiling does not have at that level. A word that is no level is never within.
func (p Permissions) Within(ceiling Permissions) error {
	for _, name := range p.Names() {
		level, most := rank(p[name]), rank(ceiling[name])
		if level < 1 || most < 1 || level > most {
			return &WiderError{name, p[name], ceiling[name]}
		}
	}
	return nil
}

// Writes reports whether any permission is above read.
func (p Permissions) Writes() bool {
	for _, level := range p {
		if level != Read {
			return true
		}
	}
	return false
}

// String is the permissions in alphabetical order, such as "contents: read, issues: write".
func (p Permissions) String() string {
	var parts []string
	for _, name := range p.Names() {
		parts = append(parts, plain.Line(name)+": "+plain.Line(p[name]))
	}
	return strings.Join(parts, ", ")
}

// Names are those of the permissions, sorted.
func (p Permissions) Names() []string { return slices.Sorted(maps.Keys(p)) }

// union adds to p what other has and p has not, or has at a lower level.
func (p Permissions) union(other Permissions) {
	for name, level := range other {
		if rank(level) > rank(p[name]) {
			p[name] = level
		}
	}
}
