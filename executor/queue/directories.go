package queue

import "sallyport/executor/tree"

// Directories are those of the host that a job uses, as clean absolute paths without
// symbolic links; an empty one is none.
type Directories struct {
	Workspace string // where its agent writes
	Sessions  string // where its session log is written
	Context   string // what is read before it begins
	Skills    []string
}

// A Use is what a job wants a directory for.
type Use int

// The uses.
const (
	Workspace Use = iota + 1
	Sessions
	Context
	Skills
)

// excludes says which directory of another job may not be used beside those of d: what an
// agent writes is for nobody else, and it writes nowhere where others have their logs.
func (d Directories) excludes(other Directories) (Use, bool) {
	switch {
	case overlap(d.Workspace, other.Workspace), overlap(d.Sessions, other.Workspace):
		return Workspace, true
	case overlap(d.Workspace, other.Sessions):
		return Sessions, true
	case overlap(d.Workspace, other.Context):
		return Context, true
	}
	for _, skills := range other.Skills {
		if overlap(d.Workspace, skills) {
			return Skills, true
		}
	}
	return 0, false
}

func overlap(a, b string) bool { return a != "" && b != "" && tree.Overlap(a, b) }
