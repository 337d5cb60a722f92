// Package strictyaml reads a YAML file of an operator's in which a mistake must not
// go unnoticed: the allowlist, the GitHub profiles.
//
// A [Reader] bounds the size and the depth of a file, refuses what makes it look
// other than it reads (control characters, marks of text direction, a second
// document, directives, anchors), unknown and duplicate keys, and goes on after a
// fault, so that all are told at once, each with its line and column. What the keys
// mean is its caller's to know, and to report with [Reader.Fault].
//
// It reads what [github.com/goccy/go-yaml] parsed, whose nodes and tokens have their
// places in the file; that package's decoder takes too much for right.
//
// The shortest use:
//
//	r := &strictyaml.Reader{Rules: rules, File: "allowlist.yaml"}
//	if body := r.Document(file); body != nil {
//		fields := r.Mapping(body, "", "version", "policies")
//		...
//	}
//	return r.Err()
package strictyaml

import (
	"fmt"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"
)

// Rules are what differs from one kind of file to another. The functions are
// required. The zero Rules take no file.
type Rules struct {
	MaxBytes  int // of the file
	MaxLevels int // of nesting; the parser's time grows with their square
	// Needs is told of an empty file, for example "it needs version and policies".
	Needs string
	// Star is told of a star by itself, an alias without a name; if empty, what the
	// parser says.
	Star string
	// NumberKeys takes a whole number for a key, as a name of the operator's own.
	NumberKeys bool
	// Terse leaves out of faults which byte is not UTF-8, the column of a misleading
	// character, and what stands in a key's place.
	Terse bool
	// Quote puts a part of the file between quotation marks, fit for a terminal.
	Quote func(part string) string
	// Show makes what the parser says fit for a terminal. It may quote the file.
	Show func(text string) string
	// Suggest is `, did you mean "x"?` for the known word that is much like word, or "".
	Suggest func(word string, known []string) string
}

// A Reader reads one file and collects its faults.
type Reader struct {
	Rules
	File   string // for messages
	Faults FileErrors
	doubt  *FileError // nil for none
}

// A Pos is a place in the file. Both count from 1; the zero Pos is the whole file.
type Pos struct{ Line, Column int }

// At is the place of t.
func At(t *token.Token) Pos {
	if t == nil || t.Position == nil {
		return Pos{}
	}
	return Pos{t.Position.Line, t.Position.Column}
}

// Start is where n begins, which for a mapping is not its own token.
func Start(n ast.Node) Pos { return At(First(n)) }

// Fault adds a fault at p. The format is as that of fmt.Sprintf; its arguments that
// are from the file have gone through Quote.
func (r *Reader) Fault(p Pos, field, format string, args ...any) {
	r.Faults = append(r.Faults, r.Finding(p, field, format, args...))
}

// Finding is what Fault adds, for a caller that only warns.
func (r *Reader) Finding(p Pos, field, format string, args ...any) *FileError {
	return &FileError{File: r.File, Line: p.Line, Column: p.Column, Field: field, Problem: fmt.Sprintf(format, args...)}
}

// Err is nil, or of type FileErrors with the faults in the order of their lines.
func (r *Reader) Err() error {
	if len(r.Faults) == 0 && r.doubt != nil {
		return FileErrors{r.doubt}
	}
	if len(r.Faults) == 0 {
		return nil
	}
	Sort(r.Faults)
	if n := len(r.Faults); n > maxFaults {
		return append(r.Faults[:maxFaults:maxFaults], r.Finding(Pos{}, "", "and %d more faults", n-maxFaults))
	}
	return r.Faults
}
