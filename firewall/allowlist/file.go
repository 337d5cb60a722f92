// Package allowlist reads allowlist.yaml, the one file that says what sandboxes may
// reach, and compiles it to the policies of package firewall.
//
// It is strict: what is not exactly right is an error that has every fault of the
// file with its line and what would be right. A [File] holds the policies, the
// warnings, and what the file says before its parts are put together.
//
//	file, err := allowlist.Load("allowlist.yaml")
//	policy, ok := file.Policy("strict")
//
// The package decides about no connection and writes no file.
package allowlist

import (
	"errors"
	"io"
	"io/fs"
	"net/netip"
	"os"
	"slices"
	"syscall"

	"sallyport/firewall"
	"sallyport/internal/strictyaml"
)

// maxFile bounds an allowlist, in bytes. A real one is a few hundred lines.
const maxFile = 1 << 20

// A FileError is one fault of an allowlist: its place, and what would be right.
type FileError = strictyaml.FileError

// FileErrors are all faults of an allowlist in the order of their lines, one on
// each line of Error. It is never returned empty as an error.
type FileErrors = strictyaml.FileErrors

// A Pos is a place in an allowlist.
type Pos = strictyaml.Pos

// A File is an allowlist that has no fault: the policies that it comes to, and what it
// says before its parts are put together.
type File struct {
	*firewall.Policies
	Groups []*Group
	Texts  []*PolicyText // of the policies, in the order of the file

	name     string
	warnings FileErrors
}

// Refuse is f with policies that refuse further addresses; see firewall.Policies.Refuse.
func (f *File) Refuse(prefixes []netip.Prefix) *File {
	stricter := *f
	stricter.Policies = f.Policies.Refuse(prefixes)
	return &stricter
}

// Warnings are what is legal in the file and probably not meant: a host under
// which anybody can register, a port that the gate does not serve.
func (f *File) Warnings() FileErrors { return slices.Clone(f.warnings) }

// Finding says something about a place in the file.
func (f *File) Finding(at Pos, field, format string, args ...any) *FileError {
	reader := strictyaml.Reader{File: f.name}
	return reader.Finding(at, field, format, args...)
}

// Open opens a regular file for reading. What is none, such as a named pipe, is an
// error at once: whoever opens one else waits for a writer.
func Open(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = &fs.PathError{Op: "open", Path: path, Err: errors.New("it is not a regular file")}
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// Load reads the allowlist at path; see Parse.
func Load(path string) (*File, error) {
	f, err := Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, FileErrors{{File: path, Problem: "there is no such file; the one that sallyport ships is allowlist.yaml", Err: err}}
	}
	if err != nil {
		return nil, strictyaml.Unreadable(path, err)
	}
	defer f.Close()
	return Parse(f, path)
}

// Parse reads an allowlist; filename is for messages. It is strict: unknown and
// duplicate keys, a second document, aliases, unknown groups and hosts that could never
// match are errors. What only takes away, such as a removal that finds nothing or a
// policy without hosts, is a warning: refused, the file would leave in force what
// should be gone. The error is of type FileErrors and
// holds every fault of the file with its line.
func Parse(r io.Reader, filename string) (*File, error) {
	l := newLoader(filename)
	body := l.Document(r)
	if body == nil {
		return nil, l.Err()
	}
	groups, texts := l.readFile(body)
	policies := l.compile(groups, texts)
	if err := l.Err(); err != nil {
		return nil, err
	}
	strictyaml.Sort(l.warnings)
	return &File{Policies: policies, Groups: groups, Texts: texts, name: filename, warnings: l.warnings}, nil
}

// A loader reads one file and collects its faults and warnings.
type loader struct {
	strictyaml.Reader
	warnings FileErrors
}

func newLoader(filename string) *loader {
	return &loader{Reader: strictyaml.Reader{File: filename, Rules: strictyaml.Rules{
		MaxBytes:   maxFile,
		MaxLevels:  32, // a real one has three
		Needs:      "it needs version, groups and policies",
		Star:       starFault("*"),
		NumberKeys: true,
		Quote:      quote,
		Show:       func(s string) string { return firewall.Escape(s, 200) },
		Suggest:    suggest,
	}}}
}

// A finder notes what is wrong at a place: Fault or warn.
type finder = func(p Pos, field, format string, args ...any)

func (l *loader) warn(p Pos, field, format string, args ...any) {
	l.warnings = append(l.warnings, l.Finding(p, field, format, args...))
}
