package firewall

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"unicode"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// The bounds of an allowlist. A real one is a few hundred lines and three levels deep.
const (
	maxFile   = 1 << 20 // bytes
	maxNested = 32      // levels
	maxFaults = 100     // faults that are reported of one file
)

// Load reads the allowlist at path; see Parse.
func Load(path string) (*Policies, error) {
	f, err := os.Open(path)
	if err != nil {
		problem := "cannot be read: " + errText(err)
		if errors.Is(err, fs.ErrNotExist) {
			problem = "there is no such file; the one that sallyport ships is allowlist.yaml"
		}
		return nil, FileErrors{{File: path, Problem: problem, Err: err}}
	}
	defer f.Close()
	return Parse(f, path)
}

// errText is err without the path that an *fs.PathError repeats.
func errText(err error) string {
	if p, ok := errors.AsType[*fs.PathError](err); ok {
		return p.Err.Error()
	}
	return err.Error()
}

// Parse reads an allowlist; filename is for messages. It is strict: unknown and
// duplicate keys, a second document, aliases, unused groups, empty policies and
// hosts that could never match are errors. The error is of type FileErrors and
// holds every fault of the file with its line.
func Parse(r io.Reader, filename string) (*Policies, error) {
	l := &loader{file: filename}
	src, err := io.ReadAll(io.LimitReader(r, maxFile+1))
	if err != nil {
		return nil, FileErrors{{File: filename, Problem: "cannot be read: " + errText(err), Err: err}}
	}
	if src = l.text(src); len(l.faults) > 0 {
		return nil, l.errors()
	}
	body := l.document(src)
	if body == nil {
		return nil, l.errors()
	}
	raw := l.readFile(body)
	ps := l.compile(raw)
	if len(l.faults) > 0 {
		return nil, l.errors()
	}
	return ps, nil
}

// A loader reads one file and collects its faults.
type loader struct {
	file     string
	faults   FileErrors
	warnings FileErrors
}

// A pos is a place in the file.
type pos struct{ line, column int }

func at(t *token.Token) pos {
	if t == nil || t.Position == nil {
		return pos{}
	}
	return pos{t.Position.Line, t.Position.Column}
}

func (l *loader) fault(p pos, field, format string, args ...any) {
	l.faults = append(l.faults, l.newError(p, field, format, args))
}

func (l *loader) warn(p pos, field, format string, args ...any) {
	l.warnings = append(l.warnings, l.newError(p, field, format, args))
}

func (l *loader) newError(p pos, field, format string, args []any) *FileError {
	return &FileError{File: l.file, Line: p.line, Column: p.column, Field: field, Problem: fmt.Sprintf(format, args...)}
}

// errors gives the faults in the order of their lines.
func (l *loader) errors() FileErrors {
	sortByLine(l.faults)
	if n := len(l.faults); n > maxFaults {
		rest := &FileError{File: l.file, Problem: fmt.Sprintf("and %d more faults", n-maxFaults)}
		return append(l.faults[:maxFaults:maxFaults], rest)
	}
	return l.faults
}

func sortByLine(es FileErrors) {
	slices.SortStableFunc(es, func(a, b *FileError) int {
		if a.Line != b.Line {
			return a.Line - b.Line
		}
		return a.Column - b.Column
	})
}

// text checks that src is text of a sane size, and gives it without a byte order
// mark and with plain line ends, which the numbers of lines do not depend on.
func (l *loader) text(src []byte) []byte {
	if len(src) > maxFile {
		l.fault(pos{}, "", "the file is longer than 1 MiB")
		return nil
	}
	if bytes.HasPrefix(src, []byte("\xff\xfe")) || bytes.HasPrefix(src, []byte("\xfe\xff")) {
		l.fault(pos{1, 1}, "", "the file is UTF-16: save it as UTF-8")
		return nil
	}
	src = bytes.TrimPrefix(src, []byte("\xef\xbb\xbf"))
	src = bytes.ReplaceAll(src, []byte("\r\n"), []byte("\n"))
	p := pos{1, 1}
	for i := 0; i < len(src); {
		r, n := utf8.DecodeRune(src[i:])
		switch {
		case r == utf8.RuneError && n == 1:
			l.fault(p, "", "the byte 0x%02x is not UTF-8", src[i])
			return nil
		case misleads(r):
			l.fault(p, "", "the control character %U has no place here: remove it", r)
			return nil
		}
		if p.column++; r == '\n' {
			p = pos{p.line + 1, 1}
		}
		i += n
	}
	return src
}

// misleads reports characters that make a file look other than it reads.
func misleads(r rune) bool {
	return r != '\n' && r != '\t' && unicode.IsControl(r) ||
		unicode.Is(unicode.Bidi_Control, r) || r == '\u2028' || r == '\u2029' || r == '\ufeff'
}

// document gives the body of the one document of src, or nil after a fault.
func (l *loader) document(src []byte) ast.Node {
	tokens := lexer.Tokenize(string(src))
	if p, deep := tooDeep(tokens); deep {
		l.fault(p, "", "nested more than %d levels deep", maxNested)
		return nil
	}
	// Duplicate keys are ours to report, together with all else.
	file, err := parser.Parse(tokens, 0, parser.AllowDuplicateMapKey())
	if err != nil {
		l.syntax(err)
		return nil
	}
	var body ast.Node
	for _, d := range file.Docs {
		switch {
		case d.Body == nil:
		case body != nil:
			l.fault(at(firstToken(d.Body)), "", "a second document starts here: one file holds one document")
			return nil
		case d.Body.Type() == ast.DirectiveType:
			l.fault(at(d.Body.GetToken()), "", "a YAML directive: remove the line")
			return nil
		default:
			body = d.Body
		}
	}
	if body == nil {
		l.fault(pos{}, "", "the file is empty: it needs version, groups and policies")
	}
	return body
}

// tooDeep guards the parser, whose time grows with the square of the depth.
func tooDeep(tokens token.Tokens) (pos, bool) {
	depth, dashes, line := 0, 0, 0
	for _, t := range tokens {
		if t.Position.Line != line {
			dashes, line = 0, t.Position.Line
		}
		switch t.Type {
		case token.SequenceStartType, token.MappingStartType:
			depth++
		case token.SequenceEndType, token.MappingEndType:
			depth--
		case token.SequenceEntryType, token.MappingKeyType:
			dashes++
		}
		if depth+dashes > maxNested {
			return at(t), true
		}
	}
	return pos{}, false
}

func (l *loader) syntax(err error) {
	if y, ok := errors.AsType[yaml.Error](err); ok {
		l.fault(at(y.GetToken()), "", "YAML syntax: %s", Escape(y.GetMessage(), 200))
		return
	}
	l.fault(pos{}, "", "YAML syntax: %s", Escape(err.Error(), 200))
}
