package strictyaml

import (
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"
)

// The parser takes more than YAML has: text without quotation marks that holds what
// other parsers split it at, values that are not indented. What differs so is mostly
// refused for what it says, too, by who knows what belongs there, and with better
// words; a doubt is told where nothing else is wrong.

const (
	inDoubt   = "reads otherwise elsewhere: put it between quotation marks"
	severalOf = "a text of several lines: put it on one, between quotation marks"
)

// What a text without quotation marks must not begin with, and, between { and } or
// [ and ], not hold.
const (
	indicators     = "-?:,[]{}#&*!|>'\"%@`"
	flowIndicators = "?,[]{}"
)

// findDoubt finds what other parsers could read otherwise.
func (r *Reader) findDoubt(text []byte, tokens token.Tokens, file *ast.File) {
	lines := &cursor{strings.Split(string(text), "\n"), Pos{1, 1}}
	depth, begun := 0, false
	keyed := make(map[int]bool) // by depth: the entry has had its colon
	for i, t := range tokens {
		if i > 0 && At(t).Line == At(tokens[i-1]).Line && closes(tokens[i-1]) && !follows(t) {
			r.doubted(At(t), "what stands here belongs to nothing: put it on a line of its own")
		}
		switch t.Type {
		case token.SequenceStartType, token.MappingStartType:
			depth++
			keyed[depth] = false
		case token.SequenceEndType, token.MappingEndType:
			depth--
		case token.MappingValueType:
			if depth > 0 && keyed[depth] {
				r.doubted(At(t), "a second colon in one entry: put a comma between two entries")
			}
			keyed[depth] = true
		case token.SequenceEntryType:
			if depth > 0 {
				r.doubted(At(t), `"-" has no place between brackets`)
			}
		case token.CollectEntryType:
			keyed[depth] = false
		case token.DocumentHeaderType:
			if begun {
				r.doubted(At(t), "a second document starts here: one file holds one document")
			}
		case token.DocumentEndType:
			if !begun {
				r.doubted(At(t), "the document ends here before it began: remove the line")
			}
		case token.DoubleQuoteType:
			r.quoted(t, lines, doubleQuoted)
		case token.SingleQuoteType:
			r.quoted(t, lines, singleQuoted)
		case token.StringType:
			if i == 0 || !isBlock(tokens[i-1]) {
				r.plain(t, depth > 0)
			}
		}
		begun = begun || t.Type != token.CommentType
	}
	for _, d := range file.Docs {
		if d.Body != nil {
			ast.Walk(indents{r, false}, d.Body)
		}
	}
}

var (
	doubleQuoted = regexp.MustCompile(`^"(\\.|[^"\\])*"`)
	singleQuoted = regexp.MustCompile(`^'([^']|'')*'`)
	// escaped is a double-quoted text each of whose codes has all its digits.
	escaped = regexp.MustCompile(`^"(\\([^xuU]|x[[:xdigit:]]{2}|u[[:xdigit:]]{4}|U[[:xdigit:]]{8})|[^"\\])*"$`)
)

// A cursor gives the rest of the line at places that come in their order.
type cursor struct {
	lines []string // those from at.Line on, the first from at.Column on
	at    Pos
}

func (c *cursor) rest(p Pos) string {
	for c.at.Line < p.Line && len(c.lines) > 1 {
		c.lines, c.at = c.lines[1:], Pos{c.at.Line + 1, 1}
	}
	for c.at.Column < p.Column && c.lines[0] != "" {
		_, n := utf8.DecodeRuneInString(c.lines[0])
		c.lines[0] = c.lines[0][n:]
		c.at.Column++
	}
	return c.lines[0]
}

// quoted doubts a text between quotation marks that are not on one line.
func (r *Reader) quoted(t *token.Token, c *cursor, form *regexp.Regexp) {
	text := form.FindString(c.rest(At(t)))
	switch {
	case text == "":
		r.doubted(At(t), severalOf)
	case text[0] == '"' && !escaped.MatchString(text):
		r.doubted(At(t), "a code after a backslash has too few digits")
	}
}

// plain doubts a text without quotation marks.
func (r *Reader) plain(t *token.Token, bracketed bool) {
	switch text := strings.TrimSpace(t.Origin); {
	case strings.Contains(text, "\n"):
		r.doubted(At(t), severalOf)
	case text != "" && strings.Contains(indicators, text[:1]), strings.Contains(text, ": "), strings.HasSuffix(text, ":"),
		bracketed && strings.ContainsAny(text, flowIndicators):
		r.doubted(At(t), "%s %s", r.Quote(text), inDoubt)
	}
}

// closes reports the end of what stands between brackets or quotation marks.
func closes(t *token.Token) bool {
	switch t.Type {
	case token.SequenceEndType, token.MappingEndType, token.SingleQuoteType, token.DoubleQuoteType:
		return true
	}
	return false
}

// follows reports what may come on the same line after such an end.
func follows(t *token.Token) bool {
	switch t.Type {
	case token.SequenceEndType, token.MappingEndType, token.CollectEntryType, token.MappingValueType, token.CommentType:
		return true
	}
	return false
}

// isBlock reports the head of a block of text.
func isBlock(t *token.Token) bool {
	return t.Type == token.LiteralType || t.Type == token.FoldedType
}

// doubted keeps the first doubt.
func (r *Reader) doubted(p Pos, format string, args ...any) {
	if r.doubt == nil {
		r.doubt = r.Finding(p, "", format, args...)
	}
}

// indents doubts values that begin no further to the right than their keys or
// dashes. The items of a list may stand below its key.
type indents struct {
	*Reader
	bracketed bool // there it does not matter
}

func (v indents) Visit(n ast.Node) ast.Visitor {
	switch n := n.(type) {
	case *ast.MappingNode:
		v.bracketed = v.bracketed || n.IsFlowStyle
	case *ast.SequenceNode:
		v.bracketed = v.bracketed || n.IsFlowStyle
		for _, item := range n.Values {
			v.below(At(n.Start), At(n.Start).Column+1, item, "dash")
		}
	case *ast.MappingValueNode:
		key := At(n.Key.GetToken())
		if At(n.Start).Line != key.Line {
			v.doubted(At(n.Start), "the colon stands on another line than its key")
		}
		least := key.Column + 1
		if s, ok := n.Value.(*ast.SequenceNode); ok && !s.IsFlowStyle {
			least = key.Column
		}
		v.below(key, least, n.Value, "key")
	}
	return v
}

// below requires that n, on a line below head, begins at column least or further right.
func (v indents) below(head Pos, least int, n ast.Node, what string) {
	if n == nil || n.Type() == ast.NullType || v.bracketed {
		return
	}
	if p := Start(n); p.Line > head.Line && p.Column < least {
		v.doubted(p, "stands too far to the left: indent it more than its %s", what)
	}
}
