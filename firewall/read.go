package firewall

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"
)

// What a file says, before its parts are put together.
type (
	rawFile struct {
		groups   []*rawGroup
		policies []*rawPolicy
	}
	rawGroup struct {
		name    string
		at      pos
		entries []*entry
		used    bool
	}
	rawPolicy struct {
		name    string
		at      pos
		allow   []rawItem
		remove  []rawItem
		extends string
		extAt   pos
		ech     *bool // true passes
	}
	// A rawItem is a group's name, a host or, in allow, the word "any".
	rawItem struct {
		at    pos
		field string
		group string
		entry *entry
		any   bool
	}
)

// The words of the file.
const (
	wordVersion  = "version"
	wordGroups   = "groups"
	wordPolicies = "policies"
	wordAllow    = "allow"
	wordExtends  = "extends"
	wordRemove   = "remove"
	wordECH      = "ech"
	wordHost     = "host"
	wordPorts    = "ports"
	wordPrivate  = "private"
	wordAny      = "any"
	wordPass     = "pass"
	wordRefuse   = "refuse"
)

// nameForm is what a group or a policy may be called. A dot would make it a host.
var nameForm = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,62}$`)

const nameFormText = "a name is of lower-case letters, digits, - and _, at most 63 of them"

func (l *loader) readFile(body ast.Node) rawFile {
	var raw rawFile
	fields := l.mapping(body, "", wordVersion, wordGroups, wordPolicies)
	version, ok := fields[wordVersion]
	switch {
	case !ok:
		l.fault(pos{1, 1}, wordVersion, `is missing: begin the file with "version: 1"`)
	default:
		if v := version.GetToken(); v.Value != "1" || version.Type() != ast.IntegerType {
			l.fault(at(v), wordVersion, "%s is not known: this is version 1", quote(v.Value))
		}
	}
	if n, ok := fields[wordGroups]; ok {
		for _, kv := range l.pairs(n, wordGroups) {
			raw.groups = append(raw.groups, l.readGroup(kv))
		}
	}
	n, ok := fields[wordPolicies]
	if !ok {
		l.fault(pos{1, 1}, wordPolicies, `is missing: without a policy nothing can run, for example "strict: {allow: [github]}"`)
		return raw
	}
	for _, kv := range l.pairs(n, wordPolicies) {
		raw.policies = append(raw.policies, l.readPolicy(kv))
	}
	return raw
}

func (l *loader) readGroup(kv pair) *rawGroup {
	g := &rawGroup{name: kv.key, at: kv.at}
	field := wordGroups + "." + show(kv.key)
	l.checkName(kv, field)
	if kv.key == wordAny {
		l.fault(kv.at, field, `"any" is the word for every host: choose another name`)
	}
	seen := make(map[string]pos)
	for i, n := range l.list(kv.value, field, "hosts") {
		f := fmt.Sprintf("%s[%d]", field, i)
		item, ok := l.readItem(n, f)
		switch {
		case !ok:
		case item.entry == nil:
			l.fault(item.at, f, "%s is not a host, which has a dot in it; a group holds no other groups", quote(item.group))
		case l.isNew(seen, item):
			item.entry.group = g.name
			g.entries = append(g.entries, item.entry)
		}
	}
	return g
}

func (l *loader) readPolicy(kv pair) *rawPolicy {
	p := &rawPolicy{name: kv.key, at: kv.at}
	field := wordPolicies + "." + show(kv.key)
	l.checkName(kv, field)
	fields := l.mapping(kv.value, field, wordAllow, wordExtends, wordRemove, wordECH)
	if n, ok := fields[wordAllow]; ok {
		p.allow = l.readAllow(n, field+"."+wordAllow)
	}
	if n, ok := fields[wordExtends]; ok {
		p.extends, p.extAt, _ = l.scalar(n, field+"."+wordExtends, "the name of a policy")
	}
	if n, ok := fields[wordRemove]; ok {
		p.remove = l.readItems(n, field+"."+wordRemove, false)
		for _, item := range p.remove {
			if e := item.entry; e != nil && e.ports != nil {
				l.fault(item.at, item.field, "what is removed goes with all its ports: write %s", quote(e.written))
			}
		}
	}
	if n, ok := fields[wordECH]; ok {
		if s, p0, ok := l.scalar(n, field+"."+wordECH, "pass or refuse"); ok {
			pass := s == wordPass
			p.ech = &pass
			if !pass && s != wordRefuse {
				l.fault(p0, field+"."+wordECH, "%s is not known: write pass or refuse", quote(s))
			}
		}
	}
	if len(fields) > 0 && p.extends == "" {
		if _, ok := fields[wordAllow]; !ok {
			l.fault(kv.at, field, `allows nothing: it needs "allow:" or "extends:"`)
		}
	}
	return p
}

// readAllow reads a list of groups and hosts, or the word "any".
func (l *loader) readAllow(n ast.Node, field string) []rawItem {
	if s, ok := n.(*ast.StringNode); ok {
		if s.Value == wordAny {
			return []rawItem{{at: at(s.Token), field: field, any: true}}
		}
		l.fault(at(s.Token), field, "%s is not a list: write any, or [%s]", quote(s.Value), show(s.Value))
		return nil
	}
	return l.readItems(n, field, true)
}

func (l *loader) readItems(n ast.Node, field string, anyToo bool) []rawItem {
	var items []rawItem
	seen := make(map[string]pos)
	for i, n := range l.list(n, field, "groups and hosts") {
		item, ok := l.readItem(n, fmt.Sprintf("%s[%d]", field, i))
		if !ok || !l.isNew(seen, item) {
			continue
		}
		if anyToo && item.group == wordAny {
			item.group, item.any = "", true
		}
		items = append(items, item)
	}
	return items
}

// isNew reports an item that its list has not had before; it is a fault if it has.
func (l *loader) isNew(seen map[string]pos, item rawItem) bool {
	key := item.group
	if e := item.entry; e != nil {
		key = e.pattern()
	}
	first, again := seen[key]
	if again {
		l.fault(item.at, item.field, "%s is in the list already, on line %d", quote(key), first.line)
		return false
	}
	seen[key] = item.at
	return true
}

// checkName wants that a group or policy has a proper name.
func (l *loader) checkName(kv pair, field string) {
	if !nameForm.MatchString(kv.key) {
		l.fault(kv.at, field, "%s is not a name: %s", quote(kv.key), nameFormText)
	}
}

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
		return "nothing"
	case *ast.MappingNode, *ast.MappingValueNode:
		return "a mapping"
	case *ast.SequenceNode:
		return "a list"
	case *ast.AnchorNode, *ast.AliasNode, *ast.MergeKeyNode:
		return "an anchor or alias, which this file does not have,"
	case *ast.TagNode:
		return "a tag, which this file does not have,"
	case *ast.LiteralNode:
		return "a block of text"
	}
	return quote(n.GetToken().Value)
}
