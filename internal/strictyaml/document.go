package strictyaml

import (
	"errors"
	"fmt"
	"io"

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
	if p, tab := tabbed(text, tokens); tab {
		r.Fault(p, "", "a tab: write spaces")
		return nil
	}
	if p, bare := glued(tokens); bare {
		r.Fault(p, "", "a colon without a space behind it: write a space between a key's colon and its value")
		return nil
	}
	if p, extra := needless(tokens); extra {
		r.Fault(p, "", "nothing stands before this comma: remove it")
		return nil
	}
	// Duplicate keys are ours to report, together with all else.
	file, err := parser.Parse(tokens, 0, parser.AllowDuplicateMapKey())
	if err != nil {
		r.syntax(err)
		return nil
	}
	if t := dropped(tokens, file); t != nil {
		r.Fault(At(t), "", "%s belongs to nothing: remove it", r.Quote(t.Value))
		return nil
	}
	r.findDoubt(text, tokens, file)
	return r.only(file.Docs)
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
		t := y.GetToken()
		p, says = At(t), y.GetMessage()
		if t != nil && t.Type == token.AliasType && r.Star != "" { // one with no name
			r.Fault(p, "", "%s", r.Star)
			return
		}
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
