package firewall

import (
	"fmt"
	"regexp"

	"github.com/goccy/go-yaml/ast"

	"sallyport/internal/strictyaml"
)

// What a file says, before its parts are put together.
type (
	rawFile struct {
		groups   []*rawGroup
		policies []*rawPolicy
	}
	rawGroup struct {
		name    string
		at      strictyaml.Pos
		entries []*entry
		used    bool
	}
	rawPolicy struct {
		name    string
		at      strictyaml.Pos
		allow   []rawItem
		remove  []rawItem
		extends string
		extAt   strictyaml.Pos
		ech     *bool // true passes
		via     string
		budgets []budgetValue
	}
	// A rawItem is a group's name, a host or, in allow, the word "any".
	rawItem struct {
		at    strictyaml.Pos
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
	wordBudgets  = "budgets"
	wordHost     = "host"
	wordPorts    = "ports"
	wordPrivate  = "private"
	wordVia      = "via"
	wordAny      = "any"
	wordPass     = "pass"
	wordRefuse   = "refuse"
)

// nameForm is what a group or a policy may be called. A dot would make it a host.
var nameForm = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,62}$`)

const nameFormText = "a name is of lower-case letters, digits, - and _, at most 63 of them"

func (l *loader) readFile(body ast.Node) rawFile {
	var raw rawFile
	fields := l.Mapping(body, "", wordVersion, wordGroups, wordPolicies)
	version, ok := fields[wordVersion]
	switch {
	case !ok:
		l.Fault(strictyaml.Pos{Line: 1, Column: 1}, wordVersion, `is missing: begin the file with "version: 1"`)
	default:
		if v := version.GetToken(); v.Value != "1" || version.Type() != ast.IntegerType {
			l.Fault(strictyaml.At(v), wordVersion, "%s is no version that is known here: write \"version: 1\"", quote(v.Value))
		}
	}
	if n, ok := fields[wordGroups]; ok {
		for _, kv := range l.Pairs(n, wordGroups) {
			raw.groups = append(raw.groups, l.readGroup(kv))
		}
	}
	n, ok := fields[wordPolicies]
	if !ok {
		l.Fault(strictyaml.Pos{Line: 1, Column: 1}, wordPolicies, `is missing: without a policy nothing can run, for example "strict: {allow: [github]}"`)
		return raw
	}
	for _, kv := range l.Pairs(n, wordPolicies) {
		raw.policies = append(raw.policies, l.readPolicy(kv))
	}
	return raw
}

func (l *loader) readGroup(kv strictyaml.Pair) *rawGroup {
	g := &rawGroup{name: kv.Key, at: kv.At}
	field := wordGroups + "." + show(kv.Key)
	l.checkName(kv, field)
	if kv.Key == wordAny {
		l.Fault(kv.At, field, `"any" is the word for every host: choose another name`)
	}
	seen := make(map[string]strictyaml.Pos)
	for i, n := range l.list(kv.Value, field, "hosts", true) {
		f := fmt.Sprintf("%s[%d]", field, i)
		item, ok := l.readItem(n, f)
		switch {
		case !ok:
		case item.entry == nil:
			l.Fault(item.at, f, "%s is not a host, which has a dot in it; a group holds no other groups", quote(item.group))
		case l.isNew(seen, item, l.Fault):
			item.entry.group = g.name
			g.entries = append(g.entries, item.entry)
		}
	}
	return g
}

func (l *loader) readPolicy(kv strictyaml.Pair) *rawPolicy {
	p := &rawPolicy{name: kv.Key, at: kv.At}
	field := wordPolicies + "." + show(kv.Key)
	l.checkName(kv, field)
	fields := l.Mapping(kv.Value, field, wordAllow, wordExtends, wordRemove, wordECH, wordVia, wordBudgets)
	if n, ok := fields[wordAllow]; ok {
		p.allow = l.readAllow(n, field+"."+wordAllow)
	}
	if n, ok := fields[wordExtends]; ok {
		p.extends, p.extAt, _ = l.Scalar(n, field+"."+wordExtends, "the name of a policy")
	}
	if n, ok := fields[wordRemove]; ok {
		p.remove = l.readRemove(n, field+"."+wordRemove)
	}
	if n, ok := fields[wordECH]; ok {
		if s, p0, ok := l.Scalar(n, field+"."+wordECH, "pass or refuse"); ok {
			pass := s == wordPass
			p.ech = &pass
			if !pass && s != wordRefuse {
				l.Fault(p0, field+"."+wordECH, "%s is not known: write pass or refuse", quote(s))
			}
		}
	}
	if n, ok := fields[wordVia]; ok {
		p.via = l.readVia(n, field+"."+wordVia)
	}
	if n, ok := fields[wordBudgets]; ok {
		p.budgets = l.readBudgets(n, field+"."+wordBudgets)
	}
	if len(fields) > 0 && p.extends == "" {
		if _, ok := fields[wordAllow]; !ok {
			l.Fault(kv.At, field, `allows nothing: it needs "allow:" or "extends:"`)
		}
	}
	return p
}

// readAllow reads a list of groups and hosts, or the word "any".
func (l *loader) readAllow(n ast.Node, field string) []rawItem {
	if s, ok := n.(*ast.StringNode); ok {
		if s.Value == wordAny {
			return []rawItem{{at: strictyaml.At(s.Token), field: field, any: true}}
		}
		l.Fault(strictyaml.At(s.Token), field, "%s", listFault(s.Value))
		return nil
	}
	items := l.readItems(l.list(n, field, itemsText, false), field, l.Fault)
	for i, item := range items {
		if item.group == wordAny {
			items[i].group, items[i].any = "", true
		}
	}
	return items
}

// readRemove reads a list of groups and hosts that are taken away.
func (l *loader) readRemove(n ast.Node, field string) []rawItem {
	items := l.readItems(l.list(n, field, itemsText, true), field, l.warn)
	for _, item := range items {
		switch e := item.entry; {
		case e != nil && e.ports != nil:
			l.Fault(item.at, item.field, "what is removed goes with all its ports: write %s", quote(e.written))
		case item.group == wordAny:
			l.Fault(item.at, item.field, "%s is no group: write the groups and hosts that are meant", quote(wordAny))
		}
	}
	return items
}

const itemsText = "groups and hosts"

// list is List for one that may be empty, with a warning if warned.
func (l *loader) list(n ast.Node, field, of string, warned bool) []ast.Node {
	if s, ok := n.(*ast.SequenceNode); ok && len(s.Values) == 0 {
		if warned {
			l.warn(strictyaml.At(s.Start), field, "the list of %s is empty", of)
		}
		return nil
	}
	return l.List(n, field, of)
}

// readItems reads the items of a list; again is told of one that is there twice.
func (l *loader) readItems(nodes []ast.Node, field string, again finder) []rawItem {
	var items []rawItem
	seen := make(map[string]strictyaml.Pos)
	for i, n := range nodes {
		if item, ok := l.readItem(n, fmt.Sprintf("%s[%d]", field, i)); ok && l.isNew(seen, item, again) {
			items = append(items, item)
		}
	}
	return items
}

// isNew reports an item that its list has not had before; tell is told if it has.
func (l *loader) isNew(seen map[string]strictyaml.Pos, item rawItem, tell finder) bool {
	key := item.group
	if e := item.entry; e != nil {
		key = e.pattern()
	}
	first, again := seen[key]
	if again {
		tell(item.at, item.field, "%s is in the list already, on line %d", quote(key), first.Line)
		return false
	}
	seen[key] = item.at
	return true
}

// checkName wants that a group or policy has a proper name.
func (l *loader) checkName(kv strictyaml.Pair, field string) {
	if !nameForm.MatchString(kv.Key) {
		l.Fault(kv.At, field, "%s is not a name: %s", quote(kv.Key), nameFormText)
	}
}
