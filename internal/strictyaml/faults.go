package strictyaml

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
)

// maxFaults bounds the faults that are reported of one file.
const maxFaults = 100

// A FileError is one fault of a file.
type FileError struct {
	File string
	// Line and Column count from 1; both are 0 for a fault of the whole file.
	Line, Column int
	// Field is the place in the file's terms, for example policies.strict.allow[2];
	// "" for a fault of syntax.
	Field string
	// Problem says what is wrong and what would be right. It holds no control
	// characters of the input.
	Problem string
	// Err is the cause where there is one, such as fs.ErrNotExist.
	Err error
}

// Error is "file:line:column: field: problem".
func (e *FileError) Error() string {
	var b strings.Builder
	b.WriteString(e.File)
	if e.Line > 0 {
		fmt.Fprintf(&b, ":%d", e.Line)
		if e.Column > 0 {
			fmt.Fprintf(&b, ":%d", e.Column)
		}
	}
	b.WriteString(": ")
	if e.Field != "" {
		b.WriteString(e.Field + ": ")
	}
	b.WriteString(e.Problem)
	return b.String()
}

func (e *FileError) Unwrap() error { return e.Err }

// FileErrors are all faults of a file in the order of their lines, one on each
// line of Error. It is never returned empty as an error.
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

// Sort puts es in the order of their places.
func Sort(es FileErrors) {
	slices.SortStableFunc(es, func(a, b *FileError) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
}

// Unreadable is the error about a file that could not be read because of err.
func Unreadable(file string, err error) FileErrors {
	text := err.Error()
	if p, ok := errors.AsType[*fs.PathError](err); ok {
		text = p.Err.Error() // the path is in front already
	}
	return FileErrors{{File: file, Problem: "cannot be read: " + text, Err: err}}
}
