package githubauth

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// A reader reads one file and collects its faults.
type reader struct {
	file   string
	faults FileErrors
}

// A pos is a place in the file.
type pos struct{ line, column int }

func at(t *token.Token) pos {
	if t == nil || t.Position == nil {
		return pos{}
	}
	return pos{t.Position.Line, t.Position.Column}
}

func (r *reader) fault(p pos, field, format string, args ...any) {
	r.faults = append(r.faults, &FileError{File: r.file, Line: p.line, Column: p.column, Field: field, Problem: fmt.Sprintf(format, args...)})
}

// document gives the body of the one document of text, nil after a fault.
func (r *reader) document(text []byte) ast.Node {
	text = bytes.ReplaceAll(bytes.TrimPrefix(text, []byte("\xef\xbb\xbf")), []byte("\r\n"), []byte("\n"))
	switch {
	case len(text) > maxFile:
		r.fault(pos{}, "", "the file is longer than %d KiB", maxFile>>10)
		return nil
	case !utf8.Valid(text):
		r.fault(pos{}, "", "the file is not UTF-8")
		return nil
	}
	if i := bytes.IndexFunc(text, misleads); i >= 0 {
		line := 1 + bytes.Count(text[:i], []byte("\n"))
		c, _ := utf8.DecodeRune(text[i:])
		r.fault(pos{line, 1}, "", "the control character %U has no place here: remove it", c)
		return nil
	}
	tokens := lexer.Tokenize(string(text))
	if p, deep := tooDeep(tokens); deep {
		r.fault(p, "", "nested more than %d levels deep", maxNested)
		return nil
	}
	// Duplicate keys are ours to report, together with all else.
	file, err := parser.Parse(tokens, 0, parser.AllowDuplicateMapKey())
	if err != nil {
		var p pos
		says := err.Error()
		if y, ok := errors.AsType[yaml.Error](err); ok {
			p, says = at(y.GetToken()), y.GetMessage()
		}
		r.fault(p, "", "YAML syntax: %s", clean(says))
		return nil
	}
	return r.only(file.Docs)
}

// only wants one document.
func (r *reader) only(docs []*ast.DocumentNode) ast.Node {
	docs = slices.DeleteFunc(slices.Clone(docs), func(d *ast.DocumentNode) bool { return d.Body == nil })
	switch {
	case len(docs) == 0:
		r.fault(pos{}, "", `the file is empty: it begins with "version: 1"`)
		return nil
	case docs[0].Body.Type() == ast.DirectiveType:
		r.fault(at(docs[0].Body.GetToken()), "", "a YAML directive: remove the line")
		return nil
	case len(docs) > 1:
		r.fault(at(first(docs[1].Body)), "", "a second document starts here: one file holds one document")
		return nil
	}
	return docs[0].Body
}

// misleads reports characters that make a file look other than it reads.
func misleads(c rune) bool {
	return c != '\n' && c != '\t' && unicode.IsControl(c) ||
		unicode.Is(unicode.Bidi_Control, c) || c == '\u2028' || c == '\u2029' || c == '\ufeff'
}

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

// A pair is one key of a mapping with its value.
type pair struct {
	key   string
	at    pos
	value ast.Node
}

// mapping reads a mapping whose keys are among known. Unknown and duplicate keys
// are faults.
func (r *reader) mapping(n ast.Node, field string, known ...string) map[string]ast.Node {
	fields := make(map[string]ast.Node)
	for _, kv := range r.pairs(n, field) {
		if !slices.Contains(known, kv.key) {
			r.fault(kv.at, field, "unknown key %s%s; the keys here are %s", quote(kv.key), suggest(kv.key, known), strings.Join(known, ", "))
			continue
		}
		fields[kv.key] = kv.value
	}
	return fields
}

// pairs reads a mapping that is not empty; a duplicate key is a fault.
func (r *reader) pairs(n ast.Node, field string) []pair {
	var kvs []*ast.MappingValueNode
	switch n := n.(type) {
	case *ast.MappingNode:
		kvs = n.Values
	case *ast.MappingValueNode:
		kvs = []*ast.MappingValueNode{n}
	default:
		r.fault(at(first(n)), field, "%s is not a mapping: write its keys with their values", describe(n))
		return nil
	}
	if len(kvs) == 0 {
		r.fault(at(n.GetToken()), field, "is empty")
	}
	var ps []pair
	for _, kv := range kvs {
		t := kv.Key.GetToken()
		p := pair{t.Value, at(t), kv.Value}
		plain, isString := kv.Key.(*ast.StringNode)
		if isString {
			p.key = plain.Value
		}
		again := slices.IndexFunc(ps, func(other pair) bool { return other.key == p.key })
		switch {
		case !isString:
			r.fault(p.at, field, "%s is not a plain key", quote(p.key))
		case again >= 0:
			r.fault(p.at, field, "%s is here already, on line %d", quote(p.key), ps[again].at.line)
		default:
			ps = append(ps, p)
		}
	}
	return ps
}

// scalar reads a plain word.
func (r *reader) scalar(n ast.Node, field, want string) (string, pos, bool) {
	if s, ok := n.(*ast.StringNode); ok {
		return s.Value, at(first(n)), true
	}
	r.fault(at(first(n)), field, "%s is not %s", describe(n), want)
	return "", pos{}, false
}

// first is where n begins: a mapping's own token is its first colon.
func first(n ast.Node) *token.Token {
	switch n := n.(type) {
	case nil:
		return nil
	case *ast.MappingNode:
		if len(n.Values) > 0 && n.Start != nil && n.Start.Type != token.MappingStartType {
			return n.Values[0].Key.GetToken()
		}
	case *ast.MappingValueNode:
		return n.Key.GetToken()
	}
	return n.GetToken()
}

// describe names what stands in the file in place of what should.
func describe(n ast.Node) string {
	switch n.(type) {
	case nil, *ast.NullNode:
		return "an empty value"
	case *ast.MappingNode, *ast.MappingValueNode:
		return "a mapping"
	case *ast.SequenceNode:
		return "a list"
	case *ast.AnchorNode, *ast.AliasNode, *ast.MergeKeyNode:
		return "an anchor or alias (there are none here)"
	case *ast.TagNode:
		return "a tag (there are none here)"
	case *ast.LiteralNode:
		return "a block of text"
	}
	return quote(n.GetToken().Value)
}
