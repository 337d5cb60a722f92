package wire

import (
	"fmt"
	"path"
	"strings"
	"unicode"

	"github.com/bmatcuk/doublestar/v4"
)

// Bounds of the patterns of a job. Alternatives multiply the work of a match.
const (
	maxGlobs        = 64
	maxGlob         = 512 // bytes
	maxAlternatives = 8   // opening braces in a pattern
)

// CheckGlobs says what is wrong with the artifact patterns of a job, or nil. Whoever
// makes a job can ask before a sandbox is started; PID 1 asks once more.
func CheckGlobs(patterns []string) error {
	if len(patterns) > maxGlobs {
		return fmt.Errorf("%d globs are more than the %d that there may be", len(patterns), maxGlobs)
	}
	for _, g := range patterns {
		if err := checkGlob(g); err != nil {
			return err
		}
	}
	return nil
}

// checkGlob says whether g can be asked for: a doublestar pattern of names below
// the working directory.
func checkGlob(g string) error {
	switch {
	case g == "" || len(g) > maxGlob || strings.Count(g, "{") > maxAlternatives:
		return fmt.Errorf("%.64q must have 1 to %d bytes and at most %d opening braces", g, maxGlob, maxAlternatives)
	case strings.ContainsFunc(g, unicode.IsControl) || !doublestar.ValidatePattern(g):
		return fmt.Errorf("%.64q must be a glob such as out/**/*.json", g)
	case path.IsAbs(g) || path.Clean(g) != g || g == "." || g == ".." || strings.HasPrefix(g, "../"):
		return fmt.Errorf("%.64q must be relative to the workspace, stay within it and have its shortest form, such as out/*.json", g)
	}
	return nil
}

// Globs are artifact patterns that CheckGlobs has passed.
type Globs []string

// Match says whether a file's name, relative to the working directory, was asked
// for.
func (gs Globs) Match(name string) bool {
	for _, g := range gs {
		if ok, _ := doublestar.Match(g, name); ok {
			return true
		}
	}
	return false
}

// Below says whether something below the directory could match, so that a walk
// does not enter what nobody asked for, and whether a pattern names that directory
// outright rather than by "**".
func (gs Globs) Below(dir string) (possible, outright bool) {
	for _, g := range gs {
		p, o := mayHold(strings.Split(g, "/"), strings.Split(dir, "/"))
		possible, outright = possible || p, outright || o
	}
	return possible, outright
}

// mayHold compares a pattern with a directory step by step. An alternative may
// hold slashes, so that what follows a brace could be anything, and a backslash
// that ends a step is one before a slash, which separates all the same.
func mayHold(pattern, dir []string) (possible, outright bool) {
	for i, step := range dir { // a pattern's step is there: the last one returns
		if strings.Contains(pattern[i], "**") || strings.Contains(pattern[i], "{") || strings.HasSuffix(pattern[i], `\`) {
			return true, false
		}
		if i >= len(pattern)-1 {
			return false, false // the pattern's last step is a file's name
		}
		if ok, err := doublestar.Match(pattern[i], step); !ok || err != nil {
			return false, false
		}
	}
	return true, true
}
