package firewall

import (
	"strings"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"
)

// A pair is one key of a mapping with its value.
type pair struct {
	key   string
	at    pos
	value ast.Node
}

// mapping reads a mapping whose keys are among known. It returns the first value
// of each; unknown and duplicate keys are faults.
func (l *loader) mapping(n ast.Node, field string, known ...string) map[string]ast.Node {
	fields := make(map[string]ast.Node)
next:
	for _, kv := range l.pairs(n, field) {
		for _, k := range known {
			if kv.key == k {
				fields[k] = kv.value
				continue next
			}
		}
		l.fault(kv.at, field, "unknown key %s%s; the keys here are %s", quote(kv.key), suggest(kv.key, known), strings.Join(known, ", "))
	}
	return fields
}

// pairs reads a mapping with keys of the writer's own; a duplicate is a fault.
func (l *loader) pairs(n ast.Node, field string) []pair {
	var kvs []*ast.MappingValueNode
	switch n := n.(type) {
	case *ast.MappingNode:
		kvs = n.Values
	case *ast.MappingValueNode:
		kvs = []*ast.MappingValueNode{n}
	default:
		l.fault(at(firstToken(n)), field, "%s is not a mapping: write its keys with their values", describe(n))
		return nil
	}
	if len(kvs) == 0 {
		l.fault(at(n.GetToken()), field, "is empty")
	}
	seen := make(map[string]pos)
	var ps []pair
	for _, kv := range kvs {
		t := kv.Key.GetToken()
		k, ok := kv.Key.(ast.Node)
		if _, isString := k.(*ast.StringNode); ok && !isString {
			if _, isInt := k.(*ast.IntegerNode); !isInt {
				l.fault(at(t), field, "%s is not a plain key", describe(k))
				continue
			}
		}
		p := pair{t.Value, at(t), kv.Value}
		if first, again := seen[p.key]; again {
			l.fault(p.at, field, "%s is here already, on line %d", quote(p.key), first.line)
			continue
		}
		seen[p.key] = p.at
		ps = append(ps, p)
	}
	return ps
}

// list reads a list that is not empty.
func (l *loader) list(n ast.Node, field, of string) []ast.Node {
	s, ok := n.(*ast.SequenceNode)
	switch {
	case !ok:
		l.fault(at(firstToken(n)), field, "%s is not a list: write [...] with the %s in it", describe(n), of)
		return nil
	case len(s.Values) == 0:
		l.fault(at(s.Start), field, "the list of %s is empty", of)
	}
	return s.Values
}

// scalar reads a plain word.
func (l *loader) scalar(n ast.Node, field, want string) (string, pos, bool) {
	t := firstToken(n)
	switch n.(type) {
	case *ast.StringNode, *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode:
		return t.Value, at(t), true
	}
	l.fault(at(t), field, "%s is not %s", describe(n), want)
	return "", at(t), false
}

// firstToken is where n begins: a mapping's own token is its first colon.
func firstToken(n ast.Node) *token.Token {
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
