package strictyaml

import (
	"bytes"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"
)

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
	if !r.readsAsItLooks(src) {
		return nil, false
	}
	// The lexer counts columns wrongly after a blank at a line's end, and loses a "!"
	// at the end of a file without one.
	src = blankEnds.ReplaceAll(src, nil)
	if !bytes.HasSuffix(src, []byte("\n")) {
		src = append(src, '\n')
	}
	return src, true
}

var blankEnds = regexp.MustCompile(`(?m) +$`)

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
		case p.Column == 1 && conflictMark(src[i:]):
			r.Fault(p, "", "a merge conflict begins here: keep one side of it, and remove the lines that begin with <<<<<<<, ======= and >>>>>>>")
			return false
		}
		if p.Column++; c == '\n' {
			p = Pos{p.Line + 1, 1}
		}
		i += n
	}
	return true
}

// conflictMark reports a line on which git left two versions of what follows.
func conflictMark(line []byte) bool { return bytes.HasPrefix(line, []byte("<<<<<<< ")) }

// misleads reports characters that make a file look other than it reads; tabs are
// for tabbed.
func misleads(c rune) bool {
	return c != '\n' && c != '\t' && unicode.IsControl(c) ||
		unicode.Is(unicode.Bidi_Control, c) || c == '\u2028' || c == '\u2029' || c == '\ufeff'
}

// tabbed finds a tab outside comments. YAML has no place for one but within a value
// or between two, and there the lexer drops it: it would join what stands apart.
func tabbed(text []byte, tokens token.Tokens) (Pos, bool) {
	if !bytes.ContainsRune(text, '\t') {
		return Pos{}, false
	}
	comments := make(map[Pos]bool)
	for _, t := range tokens {
		if t.Type == token.CommentType {
			comments[At(t)] = true
		}
	}
	line := 0
	for l := range strings.Lines(string(text)) {
		p := Pos{Line: line + 1}
		line = p.Line
		for _, c := range l {
			if p.Column++; c == '\t' {
				return p, true
			}
			if c == '#' && comments[p] {
				break
			}
		}
	}
	return Pos{}, false
}

// glued finds a colon between { and } or [ and ] for which a mapping is read only
// here: what follows a plain key is set off by white space, or the colon is part of
// the key.
func glued(tokens token.Tokens) (Pos, bool) {
	depth := 0
	for i, t := range tokens {
		switch t.Type {
		case token.MappingStartType, token.SequenceStartType:
			depth++
		case token.MappingEndType, token.SequenceEndType:
			depth--
		case token.MappingValueType:
			if depth > 0 && !quotedKey(tokens[:i]) && !setOff(t, tokens[i+1:]) {
				return At(t), true
			}
		}
	}
	return Pos{}, false
}

// needless finds a comma with nothing before it.
func needless(tokens token.Tokens) (Pos, bool) {
	last := token.UnknownType
	for _, t := range tokens {
		if t.Type == token.CollectEntryType {
			switch last {
			case token.CollectEntryType, token.SequenceStartType, token.MappingStartType:
				return At(t), true
			}
		}
		if t.Type != token.CommentType {
			last = t.Type
		}
	}
	return Pos{}, false
}

func quotedKey(before token.Tokens) bool {
	if len(before) == 0 {
		return false
	}
	switch before[len(before)-1].Type {
	case token.SingleQuoteType, token.DoubleQuoteType:
		return true
	}
	return false
}

// setOff reports whether white space is between colon and what follows.
func setOff(colon *token.Token, after token.Tokens) bool {
	if len(after) == 0 {
		return false
	}
	switch after[0].Type {
	case token.MappingEndType, token.SequenceEndType, token.CollectEntryType:
		return true // an empty value
	}
	at, next := At(colon), At(after[0])
	return next.Line > at.Line || next.Line == at.Line && next.Column > at.Column+1
}

// dropped finds a tag or an anchor that the parser left out of file, nil if none.
func dropped(tokens token.Tokens, file *ast.File) *token.Token {
	kept := make(keeper)
	for _, d := range file.Docs {
		if d.Body != nil {
			ast.Walk(kept, d.Body)
		}
	}
	for _, t := range tokens {
		switch t.Type {
		case token.TagType, token.AnchorType, token.AliasType:
			if !kept[At(t)] {
				return t
			}
		}
	}
	return nil
}

// A keeper collects where the tags, anchors and aliases of a tree are.
type keeper map[Pos]bool

func (k keeper) Visit(n ast.Node) ast.Visitor {
	switch n.(type) {
	case *ast.TagNode, *ast.AnchorNode, *ast.AliasNode:
		k[At(n.GetToken())] = true
	}
	return k
}
