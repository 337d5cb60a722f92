package firewall

import (
	"fmt"
	"strings"
)

// A FileError is one fault of an allowlist.
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

// FileErrors are all faults of an allowlist in the order of their lines, one on
// each line of Error. It is never returned empty as an error.
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
