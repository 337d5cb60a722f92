package strictyaml

import (
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"
)

// A Pair is one key of a mapping with its value.
type Pair struct {
	Key   string
	At    Pos
	Value ast.Node
}

// Mapping reads a mapping whose keys are among known. It returns the first value
// of each; unknown and duplicate keys are faults.
func (r *Reader) Mapping(n ast.Node, field string, known ...string) map[string]ast.Node {
	fields := make(map[string]ast.Node)
	for _, kv := range r.Pairs(n, field) {
		if !slices.Contains(known, kv.Key) {
			r.Fault(kv.At, field, "unknown key %s%s; the keys here are %s", r.Quote(kv.Key), r.Suggest(kv.Key, known), strings.Join(known, ", "))
			continue
		}
		fields[kv.Key] = kv.Value
	}
	return fields
}

// Pairs reads a mapping, not an empty one, with keys of the writer's own; a
// duplicate is a fault.
func (r *Reader) Pairs(n ast.Node, field string) []Pair {
	var kvs []*ast.MappingValueNode
	switch n := n.(type) {
	case *ast.MappingNode:
		kvs = n.Values
	case *ast.MappingValueNode:
		kvs = []*ast.MappingValueNode{n}
	default:
		r.Fault(Start(n), field, "%s is not a mapping: write its keys with their values", r.Describe(n))
		return nil
	}
	if len(kvs) == 0 {
		r.Fault(At(n.GetToken()), field, "is empty")
	}
	seen := make(map[string]Pos)
	var ps []Pair
	for _, kv := range kvs {
		t := kv.Key.GetToken()
		p := Pair{t.Value, At(t), kv.Value}
		first, again := seen[p.Key]
		switch {
		case !r.isKey(kv.Key):
			r.Fault(p.At, field, "%s is not a plain key", r.describeKey(kv.Key))
		case again:
			r.Fault(p.At, field, "%s is here already, on line %d", r.Quote(p.Key), first.Line)
		default:
			seen[p.Key] = p.At
			ps = append(ps, p)
		}
	}
	return ps
}

func (r *Reader) isKey(n ast.Node) bool {
	switch n.(type) {
	case *ast.StringNode:
		return true
	case *ast.IntegerNode:
		return r.NumberKeys
	}
	return false
}

func (r *Reader) describeKey(n ast.Node) string {
	if r.Terse {
		return r.Quote(n.GetToken().Value)
	}
	return r.Describe(n)
}

// List reads a list that is not empty; of says of what.
func (r *Reader) List(n ast.Node, field, of string) []ast.Node {
	s, ok := n.(*ast.SequenceNode)
	switch {
	case !ok:
		r.Fault(Start(n), field, "%s is not a list: write [...] with the %s in it", r.Describe(n), of)
		return nil
	case len(s.Values) == 0:
		r.Fault(At(s.Start), field, "the list of %s is empty", of)
	}
	return s.Values
}

// Scalar reads a plain word or a number as it is written; want names it, for
// example "a host".
func (r *Reader) Scalar(n ast.Node, field, want string) (string, Pos, bool) {
	t := First(n)
	switch n.(type) {
	case *ast.StringNode, *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode:
		return t.Value, At(t), true
	}
	r.Fault(At(t), field, "%s is not %s", r.Describe(n), want)
	return "", At(t), false
}

// Text reads what is text for YAML, too: no number and no true or false, unless
// between quotation marks.
func (r *Reader) Text(n ast.Node, field, want string) (string, Pos, bool) {
	if s, ok := n.(*ast.StringNode); ok {
		return s.Value, Start(n), true
	}
	r.Fault(Start(n), field, "%s is not %s", r.Describe(n), want)
	return "", Start(n), false
}

// First is the token with which n begins: a mapping's own is its first colon.
func First(n ast.Node) *token.Token {
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

// Describe names what stands in the file in place of what should.
func (r *Reader) Describe(n ast.Node) string {
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
	return r.Quote(n.GetToken().Value)
}
