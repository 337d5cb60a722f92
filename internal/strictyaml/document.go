package strictyaml

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"unicode"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// Document gives the body of the one document that is in in, or nil after a fault.
func (r *Reader) Document(in io.Reader) ast.Node {
	src, err := io.ReadAll(io.LimitReader(in, int64(r.MaxBytes)+1))
	if err != nil {
		r.Faults = append(r.Faults, Unreadable(r.File, err)...)
		return nil
	}
	text, ok := r.text(src)
	if !ok {
		return nil
	}
	tokens := lexer.Tokenize(string(text))
	if p, deep := tooDeep(tokens, r.MaxLevels); deep {
		r.Fault(p, "", "nested more than %d levels deep", r.MaxLevels)
		return nil
	}
	// Duplicate keys are ours to report, together with all else.
	file, err := parser.Parse(tokens, 0, parser.AllowDuplicateMapKey())
	if err != nil {
		r.syntax(err)
		return nil
	}
	return r.only(file.Docs)
}

// text checks that src is text of a sane size, and gives it without a byte order
// mark and with plain line ends, which the numbers of lines do not depend on.
func (r *Reader) text(src []byte) ([]byte, bool) {
	switch {
	case len(src) > r.MaxBytes:
		r.Fault(Pos{}, "", "the file is longer than %s", size(r.MaxBytes))
		return nil, false
	case r.Terse && !utf8.Valid(src):
		r.Fault(Pos{}, "", "the file is not UTF-8")
		return nil, false
	case bytes.HasPrefix(src, []byte("\xff\xfe")), bytes.HasPrefix(src, []byte("\xfe\xff")):
		r.Fault(Pos{1, 1}, "", "the file is UTF-16: save it as UTF-8")
		return nil, false
	}
	src = bytes.TrimPrefix(src, []byte("\xef\xbb\xbf"))
	src = bytes.ReplaceAll(src, []byte("\r\n"), []byte("\n"))
	return src, r.readsAsItLooks(src)
}

func (r *Reader) readsAsItLooks(src []byte) bool {
	p := Pos{1, 1}
	for i := 0; i < len(src); {
		c, n := utf8.DecodeRune(src[i:])
		switch {
		case c == utf8.RuneError && n == 1:
			r.Fault(p, "", "the byte 0x%02x is not UTF-8", src[i])
			return false
		case misleads(c):
			if r.Terse {
				p.Column = 1
			}
			r.Fault(p, "", "the control character %U has no place here: remove it", c)
			return false
		}
		if p.Column++; c == '\n' {
			p = Pos{p.Line + 1, 1}
		}
		i += n
	}
	return true
}

// misleads reports characters that make a file look other than it reads.
func misleads(c rune) bool {
	return c != '\n' && c != '\t' && unicode.IsControl(c) ||
		unicode.Is(unicode.Bidi_Control, c) || c == '\u2028' || c == '\u2029' || c == '\ufeff'
}

// size is 1 MiB or 256 KiB.
func size(bytes int) string {
	if bytes%(1<<20) == 0 {
		return fmt.Sprintf("%d MiB", bytes>>20)
	}
	return fmt.Sprintf("%d KiB", bytes>>10)
}

// tooDeep guards the parser, whose time grows with the square of the depth.
func tooDeep(tokens token.Tokens, most int) (Pos, bool) {
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
		if depth+dashes > most {
			return At(t), true
		}
	}
	return Pos{}, false
}

func (r *Reader) syntax(err error) {
	var p Pos
	says := err.Error()
	if y, ok := errors.AsType[yaml.Error](err); ok {
		p, says = At(y.GetToken()), y.GetMessage()
	}
	r.Fault(p, "", "YAML syntax: %s", r.Show(says))
}

// only wants one document.
func (r *Reader) only(docs []*ast.DocumentNode) ast.Node {
	var body ast.Node
	for _, d := range docs {
		switch {
		case d.Body == nil:
		case body != nil:
			r.Fault(Start(d.Body), "", "a second document starts here: one file holds one document")
			return nil
		case d.Body.Type() == ast.DirectiveType:
			r.Fault(At(d.Body.GetToken()), "", "a YAML directive: remove the line")
			return nil
		default:
			body = d.Body
		}
	}
	if body == nil {
		r.Fault(Pos{}, "", "the file is empty: %s", r.Needs)
	}
	return body
}
