package patch

import (
	"bytes"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"golang.org/x/net/publicsuffix"
)

// A file is a text with what it says. It holds only what allowlist.Parse has
// taken, so that nodes of another kind than expected need no mention.
type file struct {
	mark     string   // a byte order mark
	lines    []string // each with its end
	groups   []section
	policies []section
}

// A section is one group or policy.
type section struct {
	name string
	node ast.Node
}

func readFile(text []byte) *file {
	const mark = "\xef\xbb\xbf"
	f := new(file)
	if rest, ok := bytes.CutPrefix(text, []byte(mark)); ok {
		f.mark, text = mark, rest
	}
	f.lines = slices.Collect(strings.Lines(string(text)))
	parsed, err := parser.ParseBytes(bytes.ReplaceAll(text, []byte("\r\n"), []byte("\n")), 0)
	if err != nil {
		return f
	}
	for _, doc := range parsed.Docs {
		for _, kv := range pairs(doc.Body) {
			switch kv.name {
			case "groups":
				f.groups = pairs(kv.node)
			case "policies":
				f.policies = pairs(kv.node)
			}
		}
	}
	return f
}

// pairs are the keys of a mapping with their values.
func pairs(n ast.Node) []section {
	var kvs []*ast.MappingValueNode
	switch n := n.(type) {
	case *ast.MappingNode:
		kvs = n.Values
	case *ast.MappingValueNode:
		kvs = []*ast.MappingValueNode{n}
	}
	var out []section
	for _, kv := range kvs {
		out = append(out, section{kv.Key.GetToken().Value, kv.Value})
	}
	return out
}

func find(sections []section, name string) ast.Node {
	for _, s := range sections {
		if s.name == name {
			return s.node
		}
	}
	return nil
}

// word is the text of a scalar, "" for another node.
func word(n ast.Node) string {
	switch n.(type) {
	case *ast.StringNode, *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode:
		return n.GetToken().Value
	}
	return ""
}

// heirs are the policies that extend policy, by others too.
func (f *file) heirs(policy string) []string {
	var heirs []string
	for _, p := range f.policies {
		from := p.name
		for range f.policies {
			if from = word(find(pairs(find(f.policies, from)), "extends")); from == policy {
				heirs = append(heirs, p.name)
				break
			}
		}
	}
	return heirs
}

// A place is where an entry could go.
type place struct {
	name   string
	list   *ast.SequenceNode // if nil, there is none yet
	any    ast.Node          // "allow: any", which becomes a list
	policy ast.Node          // which needs a key "allow" where both are nil
	after  int               // the item of list to which the entry is nearest
}

// places are those for a host in a policy, the best first: lists with a sibling of
// the host, which has the same registrable domain, then the policy's own list.
func (f *file) places(policy string, h Host) []place {
	node := find(f.policies, policy)
	own := place{name: "policy " + policy, policy: node}
	var best []place
	switch allow := find(pairs(node), "allow").(type) {
	case *ast.SequenceNode:
		own.list, own.after = allow, len(allow.Values)-1
		if i := sibling(allow, h); i >= 0 {
			own.after = i
			best = append(best, own)
		}
		for _, item := range allow.Values {
			group, ok := find(f.groups, word(item)).(*ast.SequenceNode)
			if !ok {
				continue
			}
			if i := sibling(group, h); i >= 0 {
				best = append(best, place{name: "group " + word(item), list: group, after: i})
			}
		}
	case nil:
	default:
		own.any = allow
	}
	return append(best, own)
}

// sibling is the last item of list with the registrable domain of h, or -1.
func sibling(list *ast.SequenceNode, h Host) int {
	domain, err := publicsuffix.EffectiveTLDPlusOne(h.Name.String())
	if err != nil {
		return -1
	}
	for i, item := range slices.Backward(list.Values) {
		host := word(item)
		if host == "" {
			host = word(find(pairs(item), "host"))
		}
		host = strings.ToLower(strings.Trim(host, "."))
		if host == domain || strings.HasSuffix(host, "."+domain) {
			return i
		}
	}
	return -1
}
