package policy

import (
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"sallyport/firewall"
	"sallyport/internal/strictyaml"
)

// The words of the file, beside those of the dimensions.
const (
	wordVersion       = "version"
	wordPolicyVersion = "policyVersion"
	wordDefault       = "default"
	wordService       = "service"
	wordTenants       = "tenants"
	wordProfiles      = "profiles"
	wordTemplates     = "templates"
	wordProviders     = "providers"
	wordImage         = "image"
	wordTier          = "tier"
	wordAgent         = "agent"
	wordBackend       = "backend"
	wordSecrets       = "secrets"
	wordEnv           = "env"
	wordFile          = "file"
	wordAll           = "all"
	wordNone          = "none"
)

const (
	maxFile   = 1 << 20 // bytes
	maxLevels = 16      // a real file has four
)

type reader struct {
	strictyaml.Reader
	rooted []rooted // directories of the tenants so far
}

func newReader(name string) *reader {
	return &reader{Reader: strictyaml.Reader{File: name, Rules: strictyaml.Rules{
		MaxBytes: maxFile, MaxLevels: maxLevels,
		Needs:   "it needs version, default and profiles",
		Quote:   quote,
		Show:    func(s string) string { return firewall.Escape(s, 200) },
		Suggest: suggest,
	}}}
}

func (r *reader) file(body ast.Node) *Profiles {
	ps := &Profiles{
		file: r.File, service: &ceiling{who: "the service", field: wordService},
		tenants: map[string]*ceiling{}, shares: map[string]Share{}, profiles: map[string]*ceiling{}, templates: map[string]*template{}, providers: map[string]*provider{},
		secrets: map[string]Secret{},
	}
	fields := r.Mapping(body, "", wordVersion, wordPolicyVersion, wordDefault, wordService, wordTenants, wordProviders, wordTemplates, wordSecrets, wordProfiles)
	r.version(fields[wordVersion])
	if n, ok := fields[wordPolicyVersion]; !ok {
		r.missing(wordPolicyVersion, `give the file a number of yours, and raise it with each change: "policyVersion: 1"`)
	} else {
		ps.version = r.whole(n, wordPolicyVersion)
	}
	for _, kv := range r.named(fields[wordProviders], wordProviders) {
		ps.providers[kv.Key] = r.provider(kv)
	}
	for _, kv := range r.named(fields[wordTemplates], wordTemplates) {
		ps.templates[kv.Key] = r.template(kv)
	}
	for _, kv := range r.named(fields[wordSecrets], wordSecrets) {
		ps.secrets[kv.Key] = r.secret(kv)
	}
	if n, ok := fields[wordService]; ok {
		r.bounds(ps.service, n)
	}
	for _, kv := range r.named(fields[wordTenants], wordTenants) {
		ps.tenants[kv.Key], ps.shares[kv.Key] = r.tenant(kv)
	}
	if _, ok := fields[wordProfiles]; !ok {
		r.missing(wordProfiles, "without a profile nobody may run anything; docs/profiles.md has some to begin with")
	}
	for _, kv := range r.named(fields[wordProfiles], wordProfiles) {
		ps.profiles[kv.Key] = r.profile(kv)
	}
	r.references(ps, fields[wordDefault])
	return ps
}

func (r *reader) version(n ast.Node) {
	if n == nil {
		r.missing(wordVersion, `begin the file with "version: 1"`)
	} else if v := n.GetToken(); n.Type() != ast.IntegerType || v.Value != "1" {
		r.Fault(strictyaml.At(v), wordVersion, `%s is no version that is known here: write "version: 1"`, quote(v.Value))
	}
}

func (r *reader) missing(field, advice string) {
	r.Fault(strictyaml.Pos{Line: 1, Column: 1}, field, "is missing: %s", advice)
}

// named reads a mapping of names of the operator's own.
func (r *reader) named(n ast.Node, field string) (pairs []strictyaml.Pair) {
	if n == nil {
		return nil
	}
	for _, kv := range r.Pairs(n, field) {
		switch {
		case !nameForm.MatchString(kv.Key):
			r.Fault(kv.At, field, "%s is not a name: %s", quote(kv.Key), nameFormText)
		case kv.Key == wordAll || kv.Key == wordNone:
			r.Fault(kv.At, field, "%s is a word of the file: choose another name", quote(kv.Key))
		default:
			pairs = append(pairs, kv)
		}
	}
	return pairs
}

// bounds reads the dimensions that c says something about. It returns all members, of
// which there may be others.
func (r *reader) bounds(c *ceiling, n ast.Node, others ...string) map[string]ast.Node {
	fields := r.Mapping(n, c.field, append(others, keys[:]...)...)
	for d, key := range keys {
		if n, ok := fields[key]; ok {
			c.bounds[d] = r.value(Dimension(d), n, c.field+"."+key)
			c.lines[d] = strictyaml.Start(n).Line
		}
	}
	return fields
}

func (r *reader) value(d Dimension, n ast.Node, field string) Value {
	switch d {
	case SandboxMode:
		return Mode(r.level(n, field, modes))
	case Strength:
		return Isolation(r.level(n, field, isolations))
	case Approval:
		return Review(r.level(n, field, reviews))
	case Time, IdleTime:
		return r.duration(n, field)
	case CostUSD:
		return r.cost(n, field)
	case Tokens:
		return Count(r.whole(n, field))
	}
	form := forms[d]
	return r.set(n, field, form.of, form.check)
}

// level reads a word of a chain, as its index.
func (r *reader) level(n ast.Node, field string, levels []string) int {
	s, p, ok := r.Scalar(n, field, "one of "+strings.Join(levels, ", "))
	if !ok {
		return 0
	}
	i := slices.Index(levels, s)
	if i < 0 {
		r.Fault(p, field, "%s is none of %s%s", quote(s), strings.Join(levels, ", "), suggest(s, levels))
		return 0
	}
	return i
}

func (r *reader) duration(n ast.Node, field string) Duration {
	s, p, ok := r.Scalar(n, field, "a time such as 30m or 2h")
	if !ok {
		return 0
	}
	d, err := parseDuration(s)
	if err != nil {
		r.Fault(p, field, "%v", err)
	}
	return d
}

func (r *reader) cost(n ast.Node, field string) Cost {
	s, p, ok := r.Scalar(n, field, "an amount of US dollars such as 2.50")
	if !ok {
		return 0
	}
	c, err := parseCost(s)
	if err != nil {
		r.Fault(p, field, "%v", err)
	}
	return c
}

func (r *reader) whole(n ast.Node, field string) int64 {
	s, p, ok := r.Scalar(n, field, "a whole number")
	if !ok {
		return 0
	}
	v, err := strconv.ParseInt(s, 10, 64)
	if n.Type() != ast.IntegerType || err != nil || v < 1 || v > math.MaxInt32*1000 {
		r.Fault(p, field, "%s is not a whole number above 0", quote(s))
		return 0
	}
	return v
}

func (r *reader) word(n ast.Node, field string, form *regexp.Regexp, text string) string {
	s, p, ok := r.Scalar(n, field, "a name")
	if ok && !form.MatchString(s) {
		r.Fault(p, field, "%s is not right here: %s", quote(s), text)
	}
	return s
}

// set reads a list of names, or the word all or none.
func (r *reader) set(n ast.Node, field, of string, check func(string) (string, error)) Set {
	if s, ok := n.(*ast.StringNode); ok {
		switch s.Value {
		case wordAll:
			return all
		case wordNone:
			return Set{}
		}
		r.Fault(strictyaml.Start(n), field, "%s is not a list: write [...] with the %s in it, all, or none", quote(s.Value), of)
		return Set{}
	}
	var set Set
	for _, item := range r.List(n, field, of) {
		s, p, ok := r.Scalar(item, field, "one of the "+of)
		if !ok {
			continue
		}
		name, err := check(s)
		switch {
		case s == wordAll || s == wordNone:
			r.Fault(p, field, "%s stands by itself: write \"%s\" without a list", quote(s), s)
		case err != nil:
			r.Fault(p, field, "%s: %v", quote(s), err)
		case slices.Contains(set.names, name):
			r.Fault(p, field, "%s is here already", quote(s))
		default:
			set.names = append(set.names, name)
		}
	}
	return set
}

// references finds names that nothing in the file explains.
func (r *reader) references(ps *Profiles, byDefault ast.Node) {
	if byDefault == nil {
		r.missing(wordDefault, `name the profile of requests that name none: "default: standard"`)
	} else {
		ps.byDefault = r.word(byDefault, wordDefault, nameForm, nameFormText)
		r.refer(strictyaml.Start(byDefault).Line, wordDefault, "profile", ps.byDefault, ps.Names())
	}
	templates, secrets := sortedKeys(ps.templates), sortedKeys(ps.secrets)
	for _, c := range ps.ceilings() {
		if c.byDefault != "" {
			r.refer(c.line, c.field+"."+wordDefault, "profile", c.byDefault, ps.Names())
		}
		for _, name := range namesOf(c.bounds[ProfileNames]) {
			r.refer(c.lines[ProfileNames], c.field+"."+wordProfiles, "profile", name, ps.Names())
		}
		for _, name := range namesOf(c.bounds[Templates]) {
			r.refer(c.lines[Templates], c.field+"."+wordTemplates, "template", name, templates)
		}
		for _, name := range namesOf(c.bounds[Secrets]) {
			r.refer(c.lines[Secrets], c.field+"."+wordSecrets, "secret", name, secrets)
		}
	}
}

func (r *reader) refer(line int, field, what, name string, known []string) {
	if !slices.Contains(known, name) && nameForm.MatchString(name) {
		r.Fault(strictyaml.Pos{Line: line, Column: 1}, field, "the file has no %s %s%s", what, quote(name), suggest(name, known))
	}
}

// ceilings are all of the file, in the order in which they are told.
func (ps *Profiles) ceilings() []*ceiling {
	list := []*ceiling{ps.service}
	for _, sort := range []map[string]*ceiling{ps.tenants, ps.profiles} {
		for _, name := range sortedKeys(sort) {
			list = append(list, sort[name])
		}
	}
	return list
}

func namesOf(v Value) []string {
	s, _ := v.(Set)
	return s.names
}
