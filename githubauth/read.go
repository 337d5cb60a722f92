package githubauth

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/agnivade/levenshtein"
	"github.com/goccy/go-yaml/ast"
)

// The words of the file.
const (
	wordVersion     = "version"
	wordCeiling     = "ceiling"
	wordProfiles    = "profiles"
	wordDescription = "description"
	wordPermissions = "permissions"
	wordAppKey      = "allowMcpAppAuth"
)

// nameForm is what a profile may be called.
var nameForm = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,62}$`)

const maxDescription = 200 // bytes

// profiles adds to ps what the file says.
func (r *reader) profiles(body ast.Node, ps *Profiles) {
	fields := r.mapping(body, "", wordVersion, wordCeiling, wordProfiles)
	if len(fields) == 0 {
		return // which is a fault
	}
	if n, ok := fields[wordVersion]; !ok {
		r.fault(pos{1, 1}, wordVersion, `is missing: begin the file with "version: 1"`)
	} else if v := n.GetToken(); n.Type() != ast.IntegerType || v.Value != "1" {
		r.fault(at(v), wordVersion, `%s is no version that is known here: write "version: 1"`, quote(v.Value))
	}
	ceiling := ps.ceiling
	if n, ok := fields[wordCeiling]; ok {
		before := len(r.faults)
		ceiling = r.permissions(n, wordCeiling)
		ps.ceiling, ps.ceilingLine = ceiling, at(first(n)).line
		if len(r.faults) > before {
			ceiling = nil // says nothing about the profiles
		}
	}
	n, ok := fields[wordProfiles]
	if !ok {
		return
	}
	for _, kv := range r.pairs(n, wordProfiles) {
		field := wordProfiles + "." + clean(kv.key)
		_, taken := ps.byName[kv.key] // a pair is there once, so by a built-in one
		switch {
		case !nameForm.MatchString(kv.key):
			r.fault(kv.at, field, "%s is not a name: a name is of lower-case letters, digits, - and _, at most 63 of them", quote(kv.key))
		case taken:
			r.fault(kv.at, field, "%s is built in and stays as it is: choose another name", quote(kv.key))
		default:
			ps.byName[kv.key] = r.profile(kv, field, ceiling)
			ps.lines[kv.key] = kv.at.line
		}
	}
}

func (r *reader) profile(kv pair, field string, ceiling Permissions) Profile {
	p, before := Profile{Name: kv.key}, len(r.faults)
	fields := r.mapping(kv.value, field, wordDescription, wordPermissions, wordAppKey)
	if n, ok := fields[wordDescription]; ok {
		p.Description = r.text(n, field+"."+wordDescription)
	}
	if n, ok := fields[wordAppKey]; ok {
		p.AllowMcpAppAuth = r.bool(n, field+"."+wordAppKey)
	}
	n, ok := fields[wordPermissions]
	if !ok {
		r.fault(kv.at, field, "has no %s: GitHub would take that for all of them", wordPermissions)
		return p
	}
	where := field + "." + wordPermissions
	p.Permissions = r.permissions(n, where)
	if ceiling == nil || len(r.faults) > before {
		return p
	}
	for _, kv := range r.pairs(n, where) {
		if err := (Permissions{kv.key: p.Permissions[kv.key]}).Within(ceiling); err != nil {
			r.fault(kv.at, where, "%v: ask for less, or raise the file's ceiling", err)
		}
	}
	return p
}

// permissions reads names and levels that GitHub knows. GitHub gives whoever has
// any permission of a repository metadata: read; so it is always in the result.
func (r *reader) permissions(n ast.Node, field string) Permissions {
	ps := Permissions{}
	for _, kv := range r.pairs(n, field) {
		level, p, ok := r.scalar(kv.value, field+"."+clean(kv.key), "a level: write read or write")
		if !ok {
			continue
		}
		known, ok := knownPermissions[kv.key]
		switch {
		case !ok:
			r.fault(kv.at, field, "GitHub knows no permission %s%s", quote(kv.key), suggest(kv.key, permissionNames()))
		case !slices.Contains(known.levels, level):
			r.fault(p, field+"."+kv.key, "%s is no level of it, it has %s", quote(level), strings.Join(known.levels, ", "))
		default:
			ps[kv.key] = level
		}
	}
	if ps["metadata"] == "" {
		ps["metadata"] = Read
	}
	return ps
}

func (r *reader) text(n ast.Node, field string) string {
	s, ok := n.(*ast.StringNode)
	switch {
	case !ok:
		r.fault(at(first(n)), field, "%s is not a text: put it between quotation marks", describe(n))
		return ""
	case len(s.Value) > maxDescription, s.Value != clean(s.Value):
		r.fault(at(first(n)), field, "a description is one line of at most %d bytes, without credentials", maxDescription)
		return ""
	}
	return s.Value
}

func (r *reader) bool(n ast.Node, field string) bool {
	b, ok := n.(*ast.BoolNode)
	if !ok {
		r.fault(at(first(n)), field, "%s is not true or false", describe(n))
		return false
	}
	return b.Value
}

// suggest is ", did you mean ...?" where a known word is much like s.
func suggest(s string, known []string) string {
	best, distance := "", 4
	for _, k := range known {
		if d := levenshtein.ComputeDistance(strings.ToLower(s), strings.ToLower(k)); d < distance && d < len(k)/2 {
			best, distance = k, d
		}
	}
	if best == "" || len(s) > 64 {
		return ""
	}
	return fmt.Sprintf(", did you mean %q?", best)
}

func quote(s string) string { return strconv.Quote(clean(s)) }
