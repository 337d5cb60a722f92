package policy

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"sallyport/executor/api"
)

// A said is what one source says, by the words of the file: an index of levels, a
// number, or names; nil names are all of them. It is read by nothing of the package.
type said map[string]any

// universe are the names that the sources draw from.
var universe = map[string][]string{
	"providers": {"docker", "local", "cube"}, "templates": {"t1", "t2"}, "images": {"i1", "i2", "i3"}, "agents": {"pi", "command"},
	"tiers": {"small", "standard"}, "egress": {"strict", "open", "release"}, "github": {"read", "write"},
	"repositories": {"acme/shop", "acme/site", "acme/*", "other/shop"}, "providerKeys": {"A_KEY", "B_KEY"}, "secrets": {"s1", "s2"},
	"tasks": {"run.shell", "call.http", "call.mcp"}, "gateways": {"mcp.a.example", "mcp.b.example"},
}

var chains = map[string]int{"mode": len(modes), "isolation": len(isolations), "time": 100, "idleTime": 100, "costUsd": 100, "tokens": 100, "approval": len(reviews)}

// asksFor are the dimensions that a request can say, with whether it names one only.
var asksFor = map[string]bool{
	"providers": true, "templates": true, "agents": true, "tiers": true, "egress": true, "github": true,
	"repositories": false, "providerKeys": false, "secrets": false,
}

// somebody says something of about half of the dimensions.
func somebody(r *rand.Rand, always ...string) said {
	s := said{}
	for _, key := range slices.Sorted(maps.Keys(chains)) {
		if r.IntN(2) == 0 {
			s[key] = r.IntN(chains[key])
		}
	}
	for _, key := range slices.Sorted(maps.Keys(universe)) {
		if r.IntN(4) == 0 || slices.Contains(always, key) {
			s[key] = names(r, universe[key])
		}
	}
	return s
}

func names(r *rand.Rand, of []string) []string {
	if r.IntN(3) == 0 {
		return nil // all
	}
	list := slices.Clone(of)
	r.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	return list[:1+max(r.IntN(len(list)), r.IntN(len(list)))]
}

// asking says what a request can.
func asking(r *rand.Rand) said {
	s := said{}
	for _, key := range []string{"mode", "isolation", "time", "idleTime", "costUsd", "tokens"} {
		if r.IntN(3) == 0 {
			s[key] = r.IntN(chains[key])
		}
	}
	for _, key := range slices.Sorted(maps.Keys(asksFor)) {
		if r.IntN(16) == 0 {
			list := slices.Clone(universe[key])
			r.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
			if asksFor[key] {
				list = list[:1]
			}
			s[key] = list[:max(1, r.IntN(len(list)+1))]
		}
	}
	return s
}

// yaml is s as a part of the file.
func (s said) yaml(indent string) string {
	var b strings.Builder
	for _, key := range slices.Sorted(maps.Keys(s)) {
		fmt.Fprintf(&b, "%s%s: %s\n", indent, key, s.text(key))
	}
	return b.String()
}

func (s said) text(key string) string {
	switch v := s[key].(type) {
	case []string:
		if v == nil {
			return "all"
		}
		return "[" + strings.Join(v, ", ") + "]"
	case int:
		switch key {
		case "mode":
			return modes[v]
		case "isolation":
			return isolations[v]
		case "approval":
			return reviews[v]
		case "time", "idleTime":
			return fmt.Sprintf("%ds", v+1)
		}
		return fmt.Sprint(v + 1)
	}
	panic(key)
}

// security is s as a request says it.
func (s said) security(profile string) map[string]any {
	sandbox, github, budgets, m := map[string]any{}, map[string]any{}, map[string]any{}, map[string]any{}
	for key, to := range map[string]map[string]any{
		"mode": sandbox, "isolation": sandbox, "providers": sandbox, "templates": sandbox, "tiers": sandbox, "time": sandbox, "idleTime": sandbox,
		"github": github, "repositories": github, "costUsd": budgets, "tokens": budgets, "egress": m, "agents": m, "providerKeys": m, "secrets": m,
	} {
		word := map[string]string{"providers": "provider", "templates": "template", "tiers": "tier", "time": "ttl", "idleTime": "idleTimeout",
			"github": "profile", "egress": "networkPolicy", "agents": "agent"}[key]
		if word == "" {
			word = key
		}
		switch v := s[key].(type) {
		case []string:
			to[word] = v
			if asksFor[key] {
				to[word] = v[0]
			}
		case int:
			to[word] = s.text(key)
			if to["costUsd"] != nil || to["tokens"] != nil {
				to[word] = v + 1
			}
		}
	}
	for name, part := range map[string]map[string]any{"sandbox": sandbox, "github": github, "budgets": budgets} {
		if len(part) > 0 {
			m[name] = part
		}
	}
	if profile != "" {
		m["executionProfile"] = profile
	}
	return m
}

// A world is one combination of all that bears on a policy.
type world struct {
	text           string // profiles.yaml
	service, acme  said
	profiles       map[string]said
	document, task said
	query          Query
	installed      Installed
}

func newWorld(r *rand.Rand) *world {
	w := &world{service: somebody(r), acme: somebody(r), profiles: map[string]said{}}
	w.acme["profiles"] = names(r, []string{"p1", "p2"})
	var b strings.Builder
	b.WriteString("version: 1\npolicyVersion: 3\ndefault: p1\nproviders: {cube: {backend: docker}}\n")
	b.WriteString("templates: {t1: {image: i1, tier: small}, t2: {agent: pi}}\n")
	b.WriteString("secrets: {s1: {env: S1}, s2: {file: S2}}\n")
	if len(w.service) > 0 {
		b.WriteString("service:\n" + w.service.yaml("  "))
	}
	b.WriteString("tenants:\n  acme:\n" + w.acme.yaml("    ") + "profiles:\n")
	for _, name := range []string{"p1", "p2"} {
		w.profiles[name] = somebody(r, "egress", "tasks")
		b.WriteString("  " + name + ":\n" + w.profiles[name].yaml("    "))
	}
	w.text = b.String()
	w.installed = Installed{
		Backends: []Backend{{"docker", Container}, {"local", Process}}, Images: []string{"i1", "i2"}, Agents: []string{"pi", "command"},
		Tiers: []string{"standard", "small"}, Egress: map[string]string{"strict": "sha256:1", "open": "sha256:2", "release": ""}, DefaultEgress: "strict",
		GitHub: []string{"read", "write"}, Time: 50 * time.Second,
	}
	w.document, w.task = asking(r), asking(r)
	pick := func() string { return []string{"", "", "p1", "p2"}[r.IntN(4)] }
	w.query.Tenant = "acme"
	w.say(pick(), pick(), r.IntN(2) == 0, r.IntN(2) == 0)
	return w
}

// say puts document and task into one of the spellings each.
func (w *world) say(documentProfile, taskProfile string, first, metadata bool) {
	spell := func(security map[string]any, metadata bool) json.RawMessage {
		m := map[string]any{"security": security}
		if metadata {
			m = map[string]any{"metadata": map[string]any{"lightWorkflow": m}}
		}
		raw, _ := json.Marshal(m)
		return raw
	}
	var err error
	if first {
		raw, _ := json.Marshal(w.document.security(documentProfile))
		w.query.Document, err = ReadDocument(nil, raw)
	} else {
		w.query.Document, err = ReadDocument(spell(w.document.security(documentProfile), metadata), nil)
	}
	if err != nil {
		panic(err)
	}
	if w.query.Task, err = ReadTask(spell(w.task.security(taskProfile), metadata)); err != nil {
		panic(err)
	}
}

// ceilings are all that the effective policy must be within.
func (w *world) ceilings(p *api.EffectivePolicy) map[string]said {
	all := map[string]said{"document": w.document, "task": w.task, "tenant": w.acme, "service": w.service, "profile": w.profiles[p.EffectiveProfile]}
	for _, ask := range []Ask{w.query.Document, w.query.Task} {
		if ask.profile != "" {
			all["profile "+ask.profile] = w.profiles[ask.profile]
		}
	}
	return all
}

// wider says in which dimensions p is wider than one of its ceilings. It judges by the
// JSON of the policy and by what the sources say, in code of its own.
func (w *world) wider(p *api.EffectivePolicy) (dims []string) {
	for who, c := range w.ceilings(p) {
		for key := range c {
			if !within(p, key, c) {
				dims = append(dims, key+" of "+who)
			}
		}
	}
	for key, grants := range map[string][]string{"github": p.Github.Profiles, "repositories": p.Github.Repositories, "secrets": p.Secrets, "gateways": p.Gateways} {
		if _, ok := w.profiles[p.EffectiveProfile][key]; !ok && len(grants) > 0 {
			dims = append(dims, key+", which the profile does not grant")
		}
	}
	if p.TTLMS == 0 || p.TTLMS > w.installed.Time.Milliseconds() || p.Isolation != map[string]string{"docker": "container", "local": "process"}[p.Backend] {
		dims = append(dims, "time or isolation of what is installed")
	}
	return dims
}

func within(p *api.EffectivePolicy, key string, c said) bool {
	list := map[string][]string{
		"profiles": {p.EffectiveProfile}, "providers": {p.Provider}, "images": {p.Image}, "agents": {p.Agent}, "tiers": {p.Tier},
		"egress": {p.NetworkPolicy}, "github": p.Github.Profiles, "repositories": p.Github.Repositories, "providerKeys": p.ProviderKeys,
		"secrets": p.Secrets, "tasks": p.ApprovedTaskTypes, "gateways": p.Gateways, "templates": {p.Template},
	}
	if p.Template == "" {
		list["templates"] = nil
	}
	number := map[string]int64{"time": p.TTLMS, "idleTime": p.IdleTimeoutMS, "costUsd": int64(p.CostUSD * 1000), "tokens": p.Tokens * 1000}
	switch v := c[key].(type) {
	case int:
		switch key {
		case "mode":
			return slices.Index(modes, p.SandboxMode) <= v
		case "isolation":
			return slices.Index(isolations, p.Isolation) <= v
		case "approval":
			return slices.Index(reviews, p.Approval) <= v
		}
		return number[key] > 0 && number[key] <= int64(v+1)*1000
	case []string:
		for _, name := range list[key] {
			owner, _, _ := strings.Cut(name, "/")
			if v != nil && !slices.Contains(v, name) && !slices.Contains(v, owner+"/*") {
				return false
			}
		}
	}
	return true
}

// resolve is Resolve of w, by a meet of its own where one is given.
func (w *world) resolve(t *testing.T, meet func(Dimension, Value, Value) Value) (*Effective, *Denial) {
	t.Helper()
	ps, err := Parse(strings.NewReader(w.text), "p.yaml")
	if err != nil {
		t.Fatalf("%v in\n%s", err, w.text)
	}
	if meet == nil {
		return ps.Resolve(w.query, w.installed)
	}
	return (&resolution{Profiles: ps, Query: w.query, Installed: w.installed, meet: meet}).resolve()
}

const worlds = 1000

// TestNeverWider: no combination of documents, tasks, tenants, services and profiles
// comes out wider than any of its ceilings.
//
// probe: T1
// oracle: the JSON of the effective policy against what each source was made to say
func TestNeverWider(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	resolved, narrowed := 0, 0
	for range worlds {
		w := newWorld(r)
		e, denial := w.resolve(t, nil)
		if denial != nil {
			if denial.Rule == "" || denial.Detail == "" || e != nil {
				t.Errorf("a denial without its reason: %+v", denial)
			}
			continue
		}
		resolved++
		narrowed += len(e.Narrowings)
		if dims := w.wider(&e.EffectivePolicy); len(dims) > 0 {
			t.Fatalf("%+v is wider in %v\ndocument %v\ntask %v\n%s", e.EffectivePolicy, dims, w.document, w.task, w.text)
		}
		for _, n := range e.Narrowings {
			if n.Reason == "" || n.Rule == "" || (n.By == "tenant" || n.By == "service" || n.By == "profile") && (n.Line == 0 || n.File != "p.yaml") {
				t.Errorf("a narrowing without its reason: %+v", n)
			}
		}
	}
	if resolved < worlds/10 || narrowed < resolved {
		t.Errorf("of %d only %d came out as anything, with %d narrowings: this says little", worlds, resolved, narrowed)
	}
}

// TestNeverWiderCanFail is the control: with a meet that does not narrow one dimension
// the property fails there.
func TestNeverWiderCanFail(t *testing.T) {
	for d := range dimensions {
		if d == ProfileNames { // which a request has or is refused, before anything is met
			continue
		}
		broken := func(of Dimension, a, b Value) Value {
			if of == d {
				return b // the last word counts
			}
			return a.Meet(b)
		}
		r := rand.New(rand.NewPCG(1, 2))
		found := false
		for i := 0; i < worlds && !found; i++ {
			w := newWorld(r)
			if e, denial := w.resolve(t, broken); denial == nil {
				found = slices.ContainsFunc(w.wider(&e.EffectivePolicy), func(dim string) bool {
					return strings.HasPrefix(dim, d.String()+" ") || strings.HasPrefix(dim, d.String()+",")
				})
			}
		}
		if !found {
			t.Errorf("%s: a meet that does not narrow it goes unnoticed", d)
		}
	}
}

// TestLattice: meet and order of each sort of value are those of a lattice.
func TestLattice(t *testing.T) {
	sorts := map[string][]Value{
		"mode":  {PerTask, WorkflowSession, EffectfulTasks, None},
		"count": {Count(0), Count(7), top[Tokens]},
		"set":   {all, Set{}, Of("a/x"), Of("a/x", "a/y", "b/x"), Of("a/*"), Of("a/*", "b/x"), Of("b/*", "a/y")},
	}
	for name, values := range sorts {
		for _, a := range values {
			for _, b := range values {
				m := a.Meet(b)
				if !m.LessOrEqual(a) || !m.LessOrEqual(b) || !m.LessOrEqual(b.Meet(a)) {
					t.Errorf("%s: the meet of %s and %s is %s", name, a, b, m)
				}
				if a.LessOrEqual(b) != a.LessOrEqual(m) {
					t.Errorf("%s: %s within %s is %t, but their meet is %s", name, a, b, a.LessOrEqual(b), m)
				}
				for _, c := range values {
					if c.LessOrEqual(a) && c.LessOrEqual(b) && !c.LessOrEqual(m) {
						t.Errorf("%s: %s is within %s and %s, not within their meet %s", name, c, a, b, m)
					}
				}
			}
		}
	}
}

// FuzzResolve gives documents and tasks of any bytes to ceilings of any kind: what is
// taken is within them.
func FuzzResolve(f *testing.F) {
	f.Add(`{"metadata":{"lightWorkflow":{"security":{"executionProfile":"p1","sandbox":{"mode":"none","ttl":"PT2H"}}}}}`, `{"sandbox":{"mode":"per-task"}}`, `{"security":{"secrets":["s1"]}}`, uint64(1))
	f.Add(`{}`, `{"github":{"profile":"write","repositories":["acme/*"]}}`, `{"security":{"executionProfile":"p2"},"metadata":{"lightWorkflow":{"security":{"executionProfile":"p2"}}}}`, uint64(7))
	f.Fuzz(func(t *testing.T, document, security, task string, seed uint64) {
		w := newWorld(rand.New(rand.NewPCG(seed, 0)))
		w.document, w.task = said{}, said{}
		var err, err2 error
		w.query.Document, err = ReadDocument(json.RawMessage(document), json.RawMessage(security))
		w.query.Task, err2 = ReadTask(json.RawMessage(task))
		if err != nil || err2 != nil {
			return
		}
		e, denial := w.resolve(t, nil)
		if denial != nil {
			return
		}
		if dims := w.wider(&e.EffectivePolicy); len(dims) > 0 {
			t.Errorf("%+v is wider in %v than\n%s", e.EffectivePolicy, dims, w.text)
		}
		for _, ask := range []Ask{w.query.Document, w.query.Task} {
			for d, v := range ask.bounds {
				if v != nil && Dimension(d) != Secrets && !e.Bounds[d].LessOrEqual(v) {
					t.Errorf("%s is %s, asked for was %s", Dimension(d), e.Bounds[d], v)
				}
			}
		}
	})
}
