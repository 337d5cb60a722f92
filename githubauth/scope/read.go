package scope

import (
	"bytes"
	"io"
	"os"

	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/agnivade/levenshtein"
	"github.com/goccy/go-yaml/ast"

	"sallyport/githubauth/plain"
	"sallyport/internal/strictyaml"
)

// A FileError is one fault of a file of profiles: its place, and what would be right.
type FileError = strictyaml.FileError

// FileErrors are all faults of a file in the order of their lines, one on each line
// of Error. It is never returned empty as an error.
type FileErrors = strictyaml.FileErrors

// A reader reads one file and collects its faults.
type reader struct{ strictyaml.Reader }

func newReader(name string) *reader {
	return &reader{strictyaml.Reader{File: name, Rules: strictyaml.Rules{
		MaxBytes:  256 << 10, // this and the next are far above a real one
		MaxLevels: 16,
		Needs:     `it begins with "version: 1"`,
		Terse:     true,
		Quote:     plain.Quote,
		Show:      plain.Line,
		Suggest:   suggest,
	}}}
}

// Load reads the file of profiles at path; see Parse.
func Load(path string) (*Profiles, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, strictyaml.Unreadable(path, err)
	}
	defer f.Close()
	return parse(path, f)
}

// Parse reads a file of profiles; name is for messages. The built-in profiles are
// in what it returns, too, and the file cannot change them other than by a ceiling
// that some of them are beyond. It is strict: unknown and duplicate keys, unknown
// permissions and levels, and a profile beyond the ceiling are errors. The error is
// of type FileErrors and holds every fault with its line.
func Parse(name string, text []byte) (*Profiles, error) {
	return parse(name, bytes.NewReader(text))
}

func parse(name string, file io.Reader) (*Profiles, error) {
	r := newReader(name)
	ps := DefaultProfiles()
	ps.file = name
	if body := r.Document(file); body != nil {
		r.profiles(body, ps)
	}
	if err := r.Err(); err != nil {
		return nil, err
	}
	return ps, nil
}

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
		r.Fault(strictyaml.At(v), wordVersion, `%s is no version that is known here: write "version: 1"`, plain.Quote(v.Value))
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
		field := wordProfiles + "." + plain.Line(kv.Key)
		_, builtIn := ps.byName[kv.Key] // the file has no key twice
		switch {
		case !nameForm.MatchString(kv.Key):
			r.Fault(kv.At, field, "%s is not a name: a name is of lower-case letters, digits, - and _, at most 63 of them", plain.Quote(kv.Key))
		case builtIn:
			r.Fault(kv.At, field, "%s is built in and stays as it is: choose another name", plain.Quote(kv.Key))
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
		level, p, ok := r.Text(kv.Value, field+"."+plain.Line(kv.Key), "a level: write read or write")
		if !ok {
			continue
		}
		known, ok := knownPermissions[kv.Key]
		switch {
		case !ok:
			r.Fault(kv.At, field, "GitHub knows no permission %s%s", plain.Quote(kv.Key), suggest(kv.Key, permissionNames()))
		case !slices.Contains(known.levels, level):
			r.Fault(p, field+"."+kv.Key, "%s is no level of it, it has %s", plain.Quote(level), strings.Join(known.levels, ", "))
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
	if !ok || len(s) <= maxDescription && s == plain.Line(s) {
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
