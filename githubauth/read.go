package githubauth

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/agnivade/levenshtein"
	"github.com/goccy/go-yaml/ast"

	"sallyport/internal/strictyaml"
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
	fields := r.Mapping(body, "", wordVersion, wordCeiling, wordProfiles)
	if len(fields) == 0 {
		return // which is a fault
	}
	if n, ok := fields[wordVersion]; !ok {
		r.Fault(strictyaml.Pos{Line: 1, Column: 1}, wordVersion, `is missing: begin the file with "version: 1"`)
	} else if v := n.GetToken(); n.Type() != ast.IntegerType || v.Value != "1" {
		r.Fault(strictyaml.At(v), wordVersion, `%s is no version that is known here: write "version: 1"`, quote(v.Value))
	}
	ceiling := ps.ceiling
	if n, ok := fields[wordCeiling]; ok {
		before := len(r.Faults)
		ceiling = r.permissions(n, wordCeiling)
		ps.ceiling, ps.ceilingLine = ceiling, strictyaml.Start(n).Line
		if len(r.Faults) > before {
			ceiling = nil // says nothing about the profiles
		}
	}
	n, ok := fields[wordProfiles]
	if !ok {
		return
	}
	for _, kv := range r.Pairs(n, wordProfiles) {
		field := wordProfiles + "." + clean(kv.Key)
		_, taken := ps.byName[kv.Key] // a pair is there once, so by a built-in one
		switch {
		case !nameForm.MatchString(kv.Key):
			r.Fault(kv.At, field, "%s is not a name: a name is of lower-case letters, digits, - and _, at most 63 of them", quote(kv.Key))
		case taken:
			r.Fault(kv.At, field, "%s is built in and stays as it is: choose another name", quote(kv.Key))
		default:
			ps.byName[kv.Key] = r.profile(kv, field, ceiling)
			ps.lines[kv.Key] = kv.At.Line
		}
	}
}

func (r *reader) profile(kv strictyaml.Pair, field string, ceiling Permissions) Profile {
	p, before := Profile{Name: kv.Key}, len(r.Faults)
	fields := r.Mapping(kv.Value, field, wordDescription, wordPermissions, wordAppKey)
	if n, ok := fields[wordDescription]; ok {
		p.Description = r.description(n, field+"."+wordDescription)
	}
	if n, ok := fields[wordAppKey]; ok {
		p.AllowMcpAppAuth = r.bool(n, field+"."+wordAppKey)
	}
	n, ok := fields[wordPermissions]
	if !ok {
		r.Fault(kv.At, field, "has no %s: GitHub would take that for all of them", wordPermissions)
		return p
	}
	where := field + "." + wordPermissions
	p.Permissions = r.permissions(n, where)
	if ceiling == nil || len(r.Faults) > before {
		return p
	}
	for _, kv := range r.Pairs(n, where) {
		if err := (Permissions{kv.Key: p.Permissions[kv.Key]}).Within(ceiling); err != nil {
			r.Fault(kv.At, where, "%v: ask for less, or raise the file's ceiling", err)
		}
	}
	return p
}

// permissions reads names and levels that GitHub knows. GitHub gives whoever has
// any permission of a repository metadata: read; so it is always in the result.
func (r *reader) permissions(n ast.Node, field string) Permissions {
	ps := Permissions{}
	for _, kv := range r.Pairs(n, field) {
		level, p, ok := r.Text(kv.Value, field+"."+clean(kv.Key), "a level: write read or write")
		if !ok {
			continue
		}
		known, ok := knownPermissions[kv.Key]
		switch {
		case !ok:
			r.Fault(kv.At, field, "GitHub knows no permission %s%s", quote(kv.Key), suggest(kv.Key, permissionNames()))
		case !slices.Contains(known.levels, level):
			r.Fault(p, field+"."+kv.Key, "%s is no level of it, it has %s", quote(level), strings.Join(known.levels, ", "))
		default:
			ps[kv.Key] = level
		}
	}
	if ps["metadata"] == "" {
		ps["metadata"] = Read
	}
	return ps
}

func (r *reader) description(n ast.Node, field string) string {
	s, p, ok := r.Text(n, field, "a text: put it between quotation marks")
	if !ok || len(s) <= maxDescription && s == clean(s) {
		return s
	}
	r.Fault(p, field, "a description is one line of at most %d bytes, without credentials", maxDescription)
	return ""
}

func (r *reader) bool(n ast.Node, field string) bool {
	b, ok := n.(*ast.BoolNode)
	if !ok {
		r.Fault(strictyaml.Start(n), field, "%s is not true or false", r.Describe(n))
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
