package githubauth

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
)

// A FileError is one fault of a file of profiles.
type FileError struct {
	File string
	// Line and Column count from 1; both are 0 for a fault of the whole file.
	Line, Column int
	// Field is the place in the file's terms, for example
	// profiles.docs-write.permissions; "" for a fault of syntax.
	Field string
	// Problem says what is wrong and what would be right.
	Problem string
	Err     error // the cause, where there is one
}

// Error is "file:line:column: field: problem".
func (e *FileError) Error() string {
	text := e.File
	if e.Line > 0 {
		text += fmt.Sprintf(":%d:%d", e.Line, e.Column)
	}
	if e.Field != "" {
		text += ": " + e.Field
	}
	return text + ": " + e.Problem
}

func (e *FileError) Unwrap() error { return e.Err }

// FileErrors are all faults of a file in the order of their lines, one on each line
// of Error. It is never returned empty as an error.
type FileErrors []*FileError

func (es FileErrors) Error() string {
	lines := make([]string, len(es))
	for i, e := range es {
		lines[i] = e.Error()
	}
	return strings.Join(lines, "\n")
}

// Unwrap gives each fault to errors.Is and errors.As.
func (es FileErrors) Unwrap() []error {
	errs := make([]error, len(es))
	for i, e := range es {
		errs[i] = e
	}
	return errs
}

// The bounds of a file of profiles, far above a real one.
const (
	maxFile   = 256 << 10 // bytes
	maxNested = 16        // levels; the parser's time grows with their square
	maxFaults = 100       // that are reported
)

// Load reads the file of profiles at path; see Parse.
func Load(path string) (*Profiles, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, FileErrors{{File: path, Problem: "cannot be read: " + errText(err), Err: err}}
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, FileErrors{{File: path, Problem: "cannot be read: " + errText(err), Err: err}}
	}
	return Parse(path, text)
}

func errText(err error) string {
	if p, ok := errors.AsType[*fs.PathError](err); ok {
		return p.Err.Error()
	}
	return err.Error()
}

// Parse reads a file of profiles; name is for messages. The built-in profiles are
// in what it returns, too, and the file cannot change them other than by a ceiling
// that some of them are beyond. It is strict: unknown and duplicate keys, unknown
// permissions and levels, and a profile beyond the ceiling are errors. The error is
// of type FileErrors and holds every fault with its line.
func Parse(name string, text []byte) (*Profiles, error) {
	r := &reader{file: name}
	ps := DefaultProfiles()
	ps.file = name
	if body := r.document(text); body != nil {
		r.profiles(body, ps)
	}
	if len(r.faults) == 0 {
		return ps, nil
	}
	slices.SortStableFunc(r.faults, func(a, b *FileError) int {
		if a.Line != b.Line {
			return a.Line - b.Line
		}
		return a.Column - b.Column
	})
	if n := len(r.faults); n > maxFaults {
		rest := &FileError{File: name, Problem: fmt.Sprintf("and %d more faults", n-maxFaults)}
		return nil, append(r.faults[:maxFaults:maxFaults], rest)
	}
	return nil, r.faults
}
