// Package policy says who may run what: it reads profiles.yaml, and computes from a
// workflow's metadata, a task's, the tenant's and the service's ceilings, approved
// profiles and what is installed the effective policy of a run, and where a task of a
// type runs.
//
// The effective policy is the meet of all of these, dimension by dimension (see
// [Value]): whatever a request combines, it gets nothing that one of its ceilings does
// not allow. What a request asks for by name and may not have is refused with the rule
// and the line; what it asks for as an amount or a strictness is narrowed, and the
// reason told.
//
// It starts nothing and keeps nothing. The shortest use:
//
//	profiles, err := policy.Load("profiles.yaml")
//	effective, denial := profiles.Resolve(policy.Query{Tenant: "acme", Document: ask}, installed)
package policy

import (
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"slices"
	"strings"

	"sallyport/firewall/allowlist"
	"sallyport/internal/strictyaml"
)

// Operator is the tenant of whoever runs the service. It has no entry in the file: only
// the service's ceiling and its profiles bind it.
const Operator = ""

// Profiles are what one profiles.yaml says. They do not change; nil ones refuse
// everything.
type Profiles struct {
	file      string
	version   int64
	byDefault string
	service   *ceiling // says nothing where the file has none
	tenants   map[string]*ceiling
	shares    map[string]Share // of the tenants
	profiles  map[string]*ceiling
	templates map[string]*template
	providers map[string]*provider
	secrets   map[string]Secret
	digest    string
}

// A ceiling is one set of bounds of the file.
type ceiling struct {
	who       string // "the tenant acme"
	field     string // "tenants.acme"
	byDefault string // of a tenant: its default profile
	line      int
	bounds    Bounds
	lines     [dimensions]int
}

// A template is an image with the settings that go with it.
type template struct {
	image, tier, agent string // "" for the default
	line               int
}

// A provider is what documents call a backend.
type provider struct {
	backend string
	line    int
}

// A Secret says how a task is given a secret, not what it is.
type Secret struct {
	Name string // the logical one
	// Variable of the task's environment holds the value, or with File the path of a
	// file that has it.
	Variable string
	File     bool
}

//go:embed default.yaml
var shipped string

// Default is the file that holds where an operator has none: the operator's token may
// do what it could without profiles, and there are no tenants.
func Default() *Profiles {
	ps, err := Parse(strings.NewReader(shipped), "built in")
	if err != nil {
		panic(err) // a test reads it
	}
	return ps
}

// Load reads the file of profiles at path; see Parse.
func Load(path string) (*Profiles, error) {
	f, err := allowlist.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, strictyaml.FileErrors{{File: path, Problem: "there is no such file; docs/profiles.md has one to begin with", Err: err}}
	}
	if err != nil {
		return nil, strictyaml.Unreadable(path, err)
	}
	defer f.Close()
	return Parse(f, path)
}

// Parse reads a file of profiles; filename is for messages. It is as strict as
// [allowlist.Parse], and refuses as well names that nothing in the file explains. The
// error is of type [strictyaml.FileErrors] and holds every fault with its line.
func Parse(in io.Reader, filename string) (*Profiles, error) {
	r := newReader(filename)
	body := r.Document(in)
	if body == nil {
		return nil, r.Err()
	}
	ps := r.file(body)
	if err := r.Err(); err != nil {
		return nil, err
	}
	ps.digest = digest([]byte(ps.canonical()))
	return ps, nil
}

// Version is the operator's own number of the file; see policyVersion in
// docs/profiles.md.
func (ps *Profiles) Version() int64 {
	if ps == nil {
		return 0
	}
	return ps.version
}

// Names are the profiles, sorted.
func (ps *Profiles) Names() []string {
	if ps == nil {
		return nil
	}
	return slices.Sorted(maps.Keys(ps.profiles))
}

// Tenants are those that the file has, sorted.
func (ps *Profiles) Tenants() []string {
	if ps == nil {
		return nil
	}
	return slices.Sorted(maps.Keys(ps.tenants))
}

// Unknown says where the file names a policy of the allowlist that is not among those.
func (ps *Profiles) Unknown(policies []string) (found strictyaml.FileErrors) {
	for _, c := range ps.ceilings() {
		for _, name := range namesOf(c.bounds[Egress]) {
			if !slices.Contains(policies, name) {
				found = append(found, &strictyaml.FileError{File: ps.file, Line: c.lines[Egress], Field: c.field + "." + Egress.String(),
					Problem: fmt.Sprintf("the allowlist has no policy %s%s", quote(name), suggest(name, policies))})
			}
		}
	}
	strictyaml.Sort(found)
	return found
}

// Digest identifies the effect of the file: "sha256:" and the hash of all that it says
// in canonical form. Comments and the order of its parts do not change it.
func (ps *Profiles) Digest() string {
	if ps == nil {
		return ""
	}
	return ps.digest
}

func (ps *Profiles) canonical() string {
	var b strings.Builder
	fmt.Fprintf(&b, "version=%d\ndefault=%s\n%s", ps.version, ps.byDefault, ps.service.canonical())
	for _, sort := range []map[string]*ceiling{ps.tenants, ps.profiles} {
		for _, name := range slices.Sorted(maps.Keys(sort)) {
			b.WriteString(sort[name].canonical())
		}
	}
	for _, name := range slices.Sorted(maps.Keys(ps.shares)) {
		b.WriteString(ps.shares[name].canonical(ps.tenants[name].field))
	}
	for _, name := range slices.Sorted(maps.Keys(ps.templates)) {
		t := ps.templates[name]
		fmt.Fprintf(&b, "templates.%s=%s %s %s\n", name, t.image, t.tier, t.agent)
	}
	for _, name := range slices.Sorted(maps.Keys(ps.providers)) {
		fmt.Fprintf(&b, "providers.%s=%s\n", name, ps.providers[name].backend)
	}
	for _, name := range sortedKeys(ps.secrets) {
		fmt.Fprintf(&b, "secrets.%s=%s %t\n", name, ps.secrets[name].Variable, ps.secrets[name].File)
	}
	return b.String()
}

func (c *ceiling) canonical() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s default=%s\n", c.field, c.byDefault)
	for d, v := range c.bounds {
		if v != nil {
			fmt.Fprintf(&b, "%s.%s=%s\n", c.field, Dimension(d), v)
		}
	}
	return b.String()
}

func digest(text []byte) string {
	sum := sha256.Sum256(text)
	return "sha256:" + hex.EncodeToString(sum[:])
}

func (r *reader) provider(kv strictyaml.Pair) *provider {
	field := wordProviders + "." + kv.Key
	fields := r.Mapping(kv.Value, field, wordBackend)
	p := &provider{line: kv.At.Line}
	if n, ok := fields[wordBackend]; ok {
		p.backend = r.word(n, field+"."+wordBackend, nameForm, nameFormText)
	} else {
		r.Fault(kv.At, field, "has no backend: say which of the executor's it stands for")
	}
	return p
}

func (r *reader) template(kv strictyaml.Pair) *template {
	field := wordTemplates + "." + kv.Key
	fields := r.Mapping(kv.Value, field, wordImage, wordTier, wordAgent)
	t := &template{line: kv.At.Line}
	for word, to := range map[string]*string{wordTier: &t.tier, wordAgent: &t.agent} {
		if n, ok := fields[word]; ok {
			*to = r.word(n, field+"."+word, nameForm, nameFormText)
		}
	}
	if n, ok := fields[wordImage]; ok {
		t.image = r.word(n, field+"."+wordImage, imageForm, imageFormText)
	}
	return t
}

func (r *reader) secret(kv strictyaml.Pair) Secret {
	field := wordSecrets + "." + kv.Key
	fields := r.Mapping(kv.Value, field, wordEnv, wordFile)
	s := Secret{Name: kv.Key}
	for _, word := range []string{wordEnv, wordFile} {
		if n, ok := fields[word]; ok {
			s.Variable, s.File = r.word(n, field+"."+word, variableForm, variableFormText), word == wordFile
		}
	}
	if len(fields) != 1 {
		r.Fault(kv.At, field, `say how a task is given it: "env: GH_TOKEN" for a variable with the value, or "file: KEY_FILE" for one with the path of a file`)
	}
	return s
}

// A profile is what an operator has approved: what it does not name it does not have,
// but for what every run has.
func (r *reader) profile(kv strictyaml.Pair) *ceiling {
	c := &ceiling{who: "the profile " + kv.Key, field: wordProfiles + "." + kv.Key, line: kv.At.Line}
	r.bounds(c, kv.Value)
	for _, d := range []Dimension{Egress, Tasks} {
		if c.bounds[d] == nil {
			r.Fault(kv.At, c.field, "has no %s: each profile says it explicitly, if need be \"%s: all\"", d, d)
		}
	}
	if c.bounds[ProfileNames] != nil {
		r.Fault(strictyaml.Pos{Line: c.lines[ProfileNames], Column: 1}, c.field, "a profile has no profiles: they are a tenant's, or the service's")
	}
	for d, v := range map[Dimension]Value{SandboxMode: EffectfulTasks, GitHub: Set{}, Repositories: Set{}, Secrets: Set{}, Gateways: Set{}} {
		if c.bounds[d] == nil {
			c.bounds[d], c.lines[d] = v, c.line
		}
	}
	return c
}
