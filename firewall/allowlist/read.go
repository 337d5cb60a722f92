package allowlist

import (
	"fmt"
	"regexp"

	"github.com/goccy/go-yaml/ast"

	"sallyport/firewall"
	"sallyport/internal/strictyaml"
)

// A Group is a group of hosts as the file writes it.
type Group struct {
	Name  string
	Hosts []*firewall.Entry

	at   Pos
	used bool
}

// A PolicyText is a policy as the file writes it.
type PolicyText struct {
	Name    string
	Extends string // "" for none
	Allow   []Item
	Remove  []Item
	Budgets []BudgetLine

	at, extendsAt Pos
	ech           *bool // true passes; nil where the policy does not say
	via           string
}

// An Item of a list is a group's name, a host or, in allow, the word "any".
type Item struct {
	At    Pos
	Field string // as errors name it
	Group string
	// Host is as the file writes it: Via may be "" for that of its policy, or "none".
	Host *firewall.Entry

	any   bool
	ports bool // the host names its ports
}

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
	wordPass     = "pass"
	wordRefuse   = "refuse"
)

// nameForm is what a group or a policy may be called. A dot would make it a host.
var nameForm = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,62}$`)

const nameFormText = "a name is of lower-case letters, digits, - and _, at most 63 of them"

func (l *loader) readFile(body ast.Node) (groups []*Group, texts []*PolicyText) {
	fields := l.Mapping(body, "", wordVersion, wordGroups, wordPolicies)
	version, ok := fields[wordVersion]
	switch {
	case !ok:
		l.Fault(Pos{Line: 1, Column: 1}, wordVersion, `is missing: begin the file with "version: 1"`)
	default:
		if v := version.GetToken(); v.Value != "1" || version.Type() != ast.IntegerType {
			l.Fault(strictyaml.At(v), wordVersion, "%s is no version that is known here: write \"version: 1\"", quote(v.Value))
		}
	}
	if n, ok := fields[wordGroups]; ok {
		for _, kv := range l.Pairs(n, wordGroups) {
			groups = append(groups, l.readGroup(kv))
		}
	}
	n, ok := fields[wordPolicies]
	if !ok {
		l.Fault(Pos{Line: 1, Column: 1}, wordPolicies, `is missing: without a policy nothing can run, for example "strict: {allow: [github]}"`)
		return groups, texts
	}
	for _, kv := range l.Pairs(n, wordPolicies) {
		texts = append(texts, l.readPolicy(kv))
	}
	return groups, texts
}

func (l *loader) readGroup(kv strictyaml.Pair) *Group {
	g := &Group{Name: kv.Key, at: kv.At}
	field := wordGroups + "." + show(kv.Key)
	l.checkName(kv, field)
	if kv.Key == firewall.Any {
		l.Fault(kv.At, field, `"any" is the word for every host: choose another name`)
	}
	seen := make(map[string]Pos)
	for i, n := range l.list(kv.Value, field, "hosts", true) {
		f := fmt.Sprintf("%s[%d]", field, i)
		item, ok := l.readItem(n, f)
		switch {
		case !ok:
		case item.Host == nil:
			l.Fault(item.At, f, "%s is not a host, which has a dot in it; a group holds no other groups", quote(item.Group))
		case l.isNew(seen, item, l.Fault):
			item.Host.Group = g.Name
			g.Hosts = append(g.Hosts, item.Host)
		}
	}
	return g
}

func (l *loader) readPolicy(kv strictyaml.Pair) *PolicyText {
	p := &PolicyText{Name: kv.Key, at: kv.At}
	field := wordPolicies + "." + show(kv.Key)
	l.checkName(kv, field)
	fields := l.Mapping(kv.Value, field, wordAllow, wordExtends, wordRemove, wordECH, wordVia, wordBudgets)
	if n, ok := fields[wordAllow]; ok {
		p.Allow = l.readAllow(n, field+"."+wordAllow)
	}
	if n, ok := fields[wordExtends]; ok {
		p.Extends, p.extendsAt, _ = l.Scalar(n, field+"."+wordExtends, "the name of a policy")
	}
	if n, ok := fields[wordRemove]; ok {
		p.Remove = l.readRemove(n, field+"."+wordRemove)
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
		p.Budgets = l.readBudgets(n, field+"."+wordBudgets)
	}
	if len(fields) > 0 && p.Extends == "" {
		if _, ok := fields[wordAllow]; !ok {
			l.Fault(kv.At, field, `allows nothing: it needs "allow:" or "extends:"`)
		}
	}
	return p
}

// readAllow reads a list of groups and hosts, or the word "any".
func (l *loader) readAllow(n ast.Node, field string) []Item {
	if s, ok := n.(*ast.StringNode); ok {
		if s.Value == firewall.Any {
			return []Item{{At: strictyaml.At(s.Token), Field: field, any: true}}
		}
		l.Fault(strictyaml.At(s.Token), field, "%s", listFault(s.Value))
		return nil
	}
	items := l.readItems(l.list(n, field, itemsText, false), field, l.Fault)
	for i, item := range items {
		if item.Group == firewall.Any {
			items[i].Group, items[i].any = "", true
		}
	}
	return items
}

// readRemove reads a list of groups and hosts that are taken away.
func (l *loader) readRemove(n ast.Node, field string) []Item {
	items := l.readItems(l.list(n, field, itemsText, true), field, l.warn)
	for _, item := range items {
		switch {
		case item.ports:
			l.Fault(item.At, item.Field, "what is removed goes with all its ports: write %s", quote(item.Host.Written))
		case item.Group == firewall.Any:
			l.Fault(item.At, item.Field, "%s is no group: write the groups and hosts that are meant", quote(firewall.Any))
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
func (l *loader) readItems(nodes []ast.Node, field string, again finder) []Item {
	var items []Item
	seen := make(map[string]Pos)
	for i, n := range nodes {
		if item, ok := l.readItem(n, fmt.Sprintf("%s[%d]", field, i)); ok && l.isNew(seen, item, again) {
			items = append(items, item)
		}
	}
	return items
}

// isNew reports an item that its list has not had before; tell is told if it has.
func (l *loader) isNew(seen map[string]Pos, item Item, tell finder) bool {
	key := item.Group
	if e := item.Host; e != nil {
		key = e.Scope.String()
	}
	first, again := seen[key]
	if again {
		tell(item.At, item.Field, "%s is in the list already, on line %d", quote(key), first.Line)
		return false
	}
	seen[key] = item.At
	return true
}

// checkName requires that a group or policy has a proper name.
func (l *loader) checkName(kv strictyaml.Pair, field string) {
	if !nameForm.MatchString(kv.Key) {
		l.Fault(kv.At, field, "%s is not a name: %s", quote(kv.Key), nameFormText)
	}
}
