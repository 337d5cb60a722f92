package entrypoint

import (
	"fmt"
	"path"
	"strings"

	"github.com/bmatcuk/doublestar/v4"
)

// Bounds of the patterns of a job. Alternatives multiply the work of a match.
const (
	maxGlobs        = 64
	maxGlob         = 512 // bytes
	maxAlternatives = 8   // opening braces in a pattern
)

// checkGlobs says whether all patterns of a job can be asked for.
func checkGlobs(patterns []string) error {
	if len(patterns) > maxGlobs {
		return fmt.Errorf("%d artifact patterns, more than %d", len(patterns), maxGlobs)
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
	if len(g) > maxGlob || strings.Count(g, "{") > maxAlternatives {
		return fmt.Errorf("the artifact pattern %.64q... has more than %d bytes or %d alternatives", g, maxGlob, maxAlternatives)
	}
	if !doublestar.ValidatePattern(g) || g == "" {
		return fmt.Errorf("the artifact pattern %q is malformed", g)
	}
	if path.IsAbs(g) || path.Clean(g) != g || g == "." || g == ".." || strings.HasPrefix(g, "../") {
		return fmt.Errorf("the artifact pattern %q does not stay below the working directory in its shortest form", g)
	}
	return nil
}

// globs are artifact patterns that checkGlob has passed.
type globs []string

// match says whether a file's name, relative to the working directory, was asked
// for.
func (gs globs) match(name string) bool {
	for _, g := range gs {
		if ok, _ := doublestar.Match(g, name); ok {
			return true
		}
	}
	return false
}

// below says whether something below the directory could match, so that a walk
// does not enter what nobody asked for, and whether a pattern names that directory
// outright rather than by "**".
func (gs globs) below(dir string) (possible, outright bool) {
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
