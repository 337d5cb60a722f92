package patch

import (
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"
)

// insert is the file with entry in this place. What it returns is not
// necessarily right: the caller judges it.
func (p place) insert(f *file, entry string) []byte {
	switch {
	case p.any != nil:
		t := p.any.GetToken()
		return f.with(t.Position.Line, t.Position.Column-1, "[").with(t.Position.Line, endOfWord(t)+1, ", "+entry+"]").text()
	case p.list == nil:
		return f.withKey(p.policy, "allow: ["+entry+"]")
	case p.list.IsFlowStyle:
		return f.intoFlow(p.list, entry)
	}
	return f.intoBlock(p.list, p.after, entry)
}

// endOfWord is the byte of its line at which the scalar t ends.
func endOfWord(t *token.Token) int {
	end := t.Position.Column - 1 + len(t.Value)
	if t.Type == token.SingleQuoteType || t.Type == token.DoubleQuoteType {
		end += 2
	}
	return end
}

// with is f with text at a byte of a line.
func (f *file) with(line, at int, text string) *file {
	g := &file{mark: f.mark, lines: slices.Clone(f.lines)}
	if s := f.line(line); at >= 0 && at <= len(s) && s != "" {
		g.lines[line-1] = s[:at] + text + s[at:]
	}
	return g
}

// line is the line of that number, "" where there is none.
func (f *file) line(n int) string {
	if n < 1 || n > len(f.lines) {
		return ""
	}
	return f.lines[n-1]
}

func (f *file) text() []byte { return []byte(f.mark + strings.Join(f.lines, "")) }

// intoFlow inserts before the bracket that closes the list, or where that stands
// on a line of its own, after the one that opens it.
func (f *file) intoFlow(list *ast.SequenceNode, entry string) []byte {
	end, start := list.End.Position, list.Start.Position
	if s := f.line(end.Line); end.Column-1 <= len(s) {
		head := strings.TrimRight(s[:end.Column-1], " \t")
		switch {
		case strings.HasSuffix(head, "["): // nothing is allowed yet
			return f.with(end.Line, end.Column-1, entry).text()
		case strings.HasSuffix(head, ","):
			return f.with(end.Line, len(head), " "+entry).text()
		case strings.TrimSpace(head) != "":
			return f.with(end.Line, len(head), ", "+entry).text()
		}
	}
	entry += ","
	if s := f.line(start.Line); start.Column < len(s) && !strings.ContainsRune(" \t\r\n", rune(s[start.Column])) {
		entry += " "
	}
	return f.with(start.Line, start.Column, entry).text()
}

// intoBlock inserts a line behind an item of the list.
func (f *file) intoBlock(list *ast.SequenceNode, after int, entry string) []byte {
	first, last := span(list.Values[after])
	indent, _, _ := strings.Cut(f.line(first), "-")
	return f.withLine(last, indent+"- "+entry)
}

// withKey gives a mapping one more key, before the others.
func (f *file) withKey(mapping ast.Node, text string) []byte {
	if m, ok := mapping.(*ast.MappingNode); ok && m.IsFlowStyle {
		return f.with(m.Start.Position.Line, m.Start.Position.Column, text+", ").text()
	}
	first, _ := span(mapping)
	s := f.line(first)
	return f.withLine(first-1, s[:len(s)-len(strings.TrimLeft(s, " "))]+text)
}

// withLine inserts a line after the line of that number, with the same end.
func (f *file) withLine(after int, text string) []byte {
	if after < 1 || after > len(f.lines) {
		return f.text()
	}
	g := &file{mark: f.mark, lines: slices.Clone(f.lines)}
	end := "\n"
	switch s := f.line(after); {
	case strings.HasSuffix(s, "\r\n"):
		end = "\r\n"
	case !strings.HasSuffix(s, "\n"): // the last line of a file that does not end its lines
		g.lines[after-1], end = s+"\n", ""
	}
	g.lines = slices.Insert(g.lines, after, text+end)
	return g.text()
}

// span is the first and the last line on which n has something.
func span(n ast.Node) (first, last int) {
	v := new(lines)
	ast.Walk(v, n)
	return v.first, v.last
}

type lines struct{ first, last int }

// Visit implements ast.Visitor.
func (v *lines) Visit(n ast.Node) ast.Visitor {
	switch n := n.(type) {
	case *ast.MappingNode:
		v.see(n.End)
	case *ast.SequenceNode:
		v.see(n.End)
	case *ast.CommentGroupNode:
		return nil
	}
	v.see(n.GetToken())
	return v
}

func (v *lines) see(t *token.Token) {
	if t == nil || t.Position == nil {
		return
	}
	if v.first == 0 || t.Position.Line < v.first {
		v.first = t.Position.Line
	}
	v.last = max(v.last, t.Position.Line)
}
