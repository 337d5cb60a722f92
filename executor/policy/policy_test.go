package policy_test

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"sallyport/executor/api"
	"sallyport/executor/policy"
)

// example is the block of its kind of docs/profiles.md.
func example(t testing.TB, kind string) string {
	t.Helper()
	doc, err := os.ReadFile("../../docs/profiles.md")
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile("(?ms)^```" + kind + "\n(.*?)^```$").FindSubmatch(doc)
	if m == nil {
		t.Fatalf("docs/profiles.md has no block of %s", kind)
	}
	return string(m[1])
}

func parse(t testing.TB, text string) *policy.Profiles {
	t.Helper()
	ps, err := policy.Parse(strings.NewReader(text), "profiles.yaml")
	if err != nil {
		t.Fatal(err)
	}
	return ps
}

// installed is an executor as make up starts it, with the policies of the example.
func installed() policy.Installed {
	return policy.Installed{
		Backends: []policy.Backend{{Name: "docker", Isolation: policy.Container}}, Images: []string{"sallyport/agent:dev"},
		Agents: []string{"pi", "agentic-pi", "command"}, Tiers: []string{"standard"},
		Egress: map[string]string{"strict": "sha256:aa", "release-egress": "sha256:bb"}, DefaultEgress: "strict",
		GitHub: []string{"read", "repo-write"},
	}
}

const releaseDocument = `{
  "dsl": "1.0.3", "namespace": "release", "name": "light-fabric-polyrepo-release", "version": "1.0.0",
  "metadata": {"lightWorkflow": {"security": {
    "executionProfile": "release-sandbox",
    "sandbox": {"mode": "workflow-session", "provider": "cubesandbox", "template": "light-fabric-release",
                "reuse": "same-workflow-instance", "ttl": "PT2H", "idleTimeout": "PT10M"}}}}}`

// effective is the product's own example of an effective policy.
const effective = `{
  "requestedProfile": "release-sandbox",
  "effectiveProfile": "release-sandbox",
  "sandboxMode": "workflow-session",
  "provider": "cubesandbox",
  "template": "light-fabric-release",
  "networkPolicy": "release-egress",
  "secretPolicy": "task-scoped",
  "approvedTaskTypes": ["run.shell", "call.http", "call.mcp"],
  "policyVersion": 7
}`

func query(t testing.TB, tenant, document, security, task string) policy.Query {
	t.Helper()
	q := policy.Query{Tenant: tenant}
	var err error
	if q.Document, err = policy.ReadDocument(json.RawMessage(document), json.RawMessage(security)); err != nil {
		t.Fatal(err)
	}
	if q.Task, err = policy.ReadTask(json.RawMessage(task)); err != nil {
		t.Fatal(err)
	}
	return q
}

// TestExample: the release workflow gets the policy that is written for it, word for
// word, in each spelling.
func TestExample(t *testing.T) {
	ps := parse(t, example(t, "yaml profiles"))
	first := example(t, "json security")
	for name, q := range map[string]policy.Query{
		"metadata":                 query(t, "acme", releaseDocument, "", ""),
		"first-class":              query(t, "acme", "", first, ""),
		"first-class, in document": query(t, "acme", `{"security": `+first+`}`, "", ""),
		"both":                     query(t, "acme", releaseDocument, first, ""),
		"by the task":              query(t, "acme", "", "", `{"run": {"shell": {}}, "security": `+first+`}`),
	} {
		e, denial := ps.Resolve(q, installed())
		if denial != nil {
			t.Errorf("%s: %v", name, denial)
			continue
		}
		got, err := json.Marshal(e.EffectivePolicy)
		var want bytes.Buffer
		if err != nil || json.Compact(&want, []byte(effective)) != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(string(got), strings.TrimSuffix(want.String(), "}")+",") {
			t.Errorf("%s: %s\nwant it to begin with %s", name, got, want.String())
		}
		if e.Backend != "docker" || e.Isolation != "container" || e.Tier != "standard" || e.Image != "sallyport/agent:dev" || e.Agent != "command" ||
			e.NetworkPolicyDigest != "sha256:bb" || e.TTLMS != 2*3600_000 || e.IdleTimeoutMS != 600_000 || e.CostUSD != 20 || e.Tokens != 20_000_000 ||
			fmt.Sprint(e.Github) != "{[read repo-write] [acme/light-fabric acme/portal-service]}" || len(e.Secrets) != 0 || e.Approval != "required" {
			t.Errorf("%s: %s", name, got)
		}
	}
}

// TestTaskSecrets: a secret goes to the task that names it, and to no other.
func TestTaskSecrets(t *testing.T) {
	ps := parse(t, example(t, "yaml profiles"))
	const publish = `{"run": {"shell": {"command": "./release.sh"}}, "metadata": {"lightWorkflow": {"security": {
		"sandbox": {"mode": "per-task", "reason": "release-token-isolation"}, "secrets": ["github-release-token"]}}}}`
	e, denial := ps.Resolve(query(t, "acme", releaseDocument, "", publish), installed())
	if denial != nil || fmt.Sprint(e.Secrets, e.Given) != "[github-release-token] [{github-release-token GH_TOKEN false}]" || e.SandboxMode != "per-task" {
		t.Errorf("the task that names it: %+v, %v", e, denial)
	}
	for name, q := range map[string]policy.Query{
		"another task":      query(t, "acme", releaseDocument, "", `{"run": {"shell": {}}}`),
		"a document's wish": query(t, "acme", releaseDocument, `{"secrets": ["github-release-token"]}`, ""),
	} {
		if e, denial := ps.Resolve(q, installed()); denial != nil || len(e.Secrets) != 0 {
			t.Errorf("%s: %+v, %v", name, e, denial)
		}
	}
	for _, task := range []string{`{"security": {"secrets": ["other"]}}`, publish} {
		q := query(t, "acme", releaseDocument, `{"secrets": []}`, task)
		if _, denial := ps.Resolve(q, installed()); denial == nil || !strings.HasSuffix(denial.Field, "secrets") {
			t.Errorf("a secret that the document does not have: %v", denial)
		}
	}
}

// TestSecretsOfOthers: a profile that several tenants share tells none of them which secrets
// it has for the others, whatever is asked.
func TestSecretsOfOthers(t *testing.T) {
	text := strings.Replace(fmt.Sprintf(tables, "isolation: process", "secrets: [s]", "agents: all"), "{s: {env: S}, t: {file: T}}", "{s: {env: S}, secret-of-others: {file: T}}", 1)
	for _, grants := range []string{"secrets: all", "secrets: [s, secret-of-others]"} {
		ps := parse(t, strings.Replace(text, "    secrets: all", "    "+grants, 1))
		for _, security := range []string{"", `{"secrets": ["s"]}`, `{"secrets": ["x"]}`} {
			e, denial := ps.Resolve(query(t, "acme", "", "", `{"run": {"shell": {}}, "security": `+cmp.Or(security, "{}")+`}`), policy.Installed{})
			told := fmt.Sprint(denial)
			if e != nil {
				text, _ := json.Marshal(e.EffectivePolicy)
				told += string(text)
			}
			if strings.Contains(told, "others") {
				t.Errorf("%s, asked for %s: %s", grants, security, told)
			}
			if denied := denial != nil; denied != strings.Contains(security, "x") {
				t.Errorf("%s, asked for %s: %v", grants, security, denial)
			}
		}
	}
}

const tables = `version: 1
policyVersion: 1
default: p
service:
  %s
tenants:
  acme:
    profiles: all
    %s
providers: {cube: {backend: docker}}
templates: {t1: {image: i1}, t2: {image: i2}}
secrets: {s: {env: S}, t: {file: T}}
profiles:
  p:
    egress: all
    tasks: all
    github: all
    repositories: all
    secrets: all
    gateways: all
    mode: none
    %s
`

// write puts one line into service, tenant or profile, as the place says.
func write(place, line string) string {
	text := [3]string{"isolation: process", "agents: all", "agents: all"}
	for i, name := range []string{"service", "tenant", "profile"} {
		if name == place {
			text[i] = line
			if name == "profile" {
				return strings.Replace(fmt.Sprintf(tables, text[0], text[1], line), "    "+strings.SplitN(line, ":", 2)[0]+": all\n", "", 1)
			}
		}
	}
	return fmt.Sprintf(tables, text[0], text[1], text[2])
}

// TestEachNarrowing: in each dimension, by each ceiling, with its rule and line.
func TestEachNarrowing(t *testing.T) {
	for _, test := range []struct {
		key, line string // of a ceiling
		security  string // of a document, for what is narrowed
		from, to  string
	}{
		{"mode", "mode: per-task", `{"sandbox": {"mode": "none"}}`, "none", "per-task"},
		{"mode", "mode: effectful-tasks", `{"sandbox": {"mode": "none"}}`, "none", "effectful-tasks"},
		{"isolation", "isolation: container", `{"sandbox": {"isolation": "process"}}`, "process", "container"},
		{"time", "time: 1h", `{"sandbox": {"ttl": "PT2H"}}`, "2h0m0s", "1h0m0s"},
		{"idleTime", "idleTime: 5m", `{"sandbox": {"idleTimeout": "PT10M"}}`, "10m0s", "5m0s"},
		{"costUsd", "costUsd: 2.50", `{"budgets": {"costUsd": 10}}`, "$10", "$2.5"},
		{"tokens", "tokens: 1000", `{"budgets": {"tokens": 5000}}`, "5000", "1000"},
	} {
		for _, by := range []string{"service", "tenant", "profile"} {
			text := write(by, test.line)
			if by == "service" && test.key != "isolation" {
				text = strings.Replace(text, "isolation: process", test.line, 1)
			}
			if by == "profile" && test.key == "mode" {
				text = strings.Replace(text, "    mode: none\n", "", 1)
			}
			e, denial := parse(t, text).Resolve(query(t, "acme", "", test.security, ""), installed())
			if denial != nil {
				t.Errorf("%s of the %s: %v", test.line, by, denial)
				continue
			}
			line := 1 + strings.Count(text[:strings.Index(text, test.line)], "\n")
			rule := map[string]string{"service": "service.", "tenant": "tenants.acme.", "profile": "profiles.p."}[by] + test.key
			found := false
			for _, n := range e.Narrowings {
				if n.Field == test.key && n.Of == "document" {
					found = true
					if n.From != test.from || n.To != test.to || n.By != by || n.Rule != rule || n.Line != line || n.File != "profiles.yaml" ||
						!strings.Contains(n.Reason, fmt.Sprintf("profiles.yaml:%d: %s", line, rule)) {
						t.Errorf("%s of the %s: %+v", test.line, by, n)
					}
				}
			}
			if !found {
				t.Errorf("%s of the %s: not told: %+v", test.line, by, e.Narrowings)
			}
			plain, denial := parse(t, write("", "")).Resolve(query(t, "acme", "", test.security, ""), installed())
			if denial != nil || len(plain.Narrowings) != 0 && test.key != "isolation" {
				t.Errorf("%s: control: %+v, %v", test.security, plain.Narrowings, denial)
			}
		}
	}
}

// TestEachRefusal: what is asked for by name, in each dimension, refused by each
// ceiling with rule and line; beside it the same where the ceiling has the name.
//
// probe: T1
// oracle: the same request under a ceiling that has what it asks for
func TestEachRefusal(t *testing.T) {
	for _, test := range []struct{ line, has, security, taskType, noun string }{
		{"providers: [local]", "providers: [cube]", `{"sandbox": {"provider": "cube"}}`, "", `provider "cube"`},
		{"templates: [t2]", "templates: [t2, t1]", `{"sandbox": {"template": "t1"}}`, "", `template "t1"`},
		{"agents: [pi]", "agents: [pi, command]", `{"agent": "command"}`, "", `agent "command"`},
		{"tiers: [standard]", "tiers: [standard, large]", `{"sandbox": {"tier": "large"}}`, "", `tier "large"`},
		{"egress: [strict]", "egress: [strict, open]", `{"networkPolicy": "open"}`, "", `egress policy "open"`},
		{"github: [read]", "github: [read, write]", `{"github": {"profile": "write"}}`, "", `GitHub profile "write"`},
		{"repositories: [acme/a]", "repositories: [acme/*]", `{"github": {"repositories": ["acme/A", "acme/b"]}}`, "", `repository "acme/b"`},
		{"repositories: [acme/a]", "repositories: [acme/*]", `{"github": {"repositories": ["acme/*"]}}`, "", `repository "acme/*"`},
		{"providerKeys: [A_KEY]", "providerKeys: [A_KEY, B_KEY]", `{"providerKeys": ["B_KEY"]}`, "", `provider key "B_KEY"`},
		{"secrets: none", "secrets: [s]", `{"secrets": ["s"]}`, "", `secret "s"`},
		{"tasks: [call.http]", "tasks: [call.http, run.shell]", `{}`, "run.shell", `task type "run.shell"`},
	} {
		for _, by := range []string{"service", "tenant", "profile"} {
			text := write(by, test.line)
			q := query(t, "acme", "", test.security, "")
			q.TaskType = test.taskType
			in := policy.Installed{Backends: []policy.Backend{{Name: "docker", Isolation: policy.Container}, {Name: "local", Isolation: policy.Process}}}
			_, denial := parse(t, text).Resolve(q, in)
			key, _, _ := strings.Cut(test.line, ":")
			rule := map[string]string{"service": "service.", "tenant": "tenants.acme.", "profile": "profiles.p."}[by] + key
			line := 1 + strings.Count(text[:strings.Index(text, test.line)], "\n")
			if denial == nil || denial.Rule != rule || denial.Line != line || denial.File != "profiles.yaml" || denial.Field == "" || !strings.Contains(denial.Detail, test.noun) {
				t.Errorf("%s of the %s: %+v, want line %d, rule %s", test.line, by, denial, line, rule)
				continue
			}
			p := denial.Problem()
			if p.Status != 403 || p.Code != api.CodePolicyDenied || p.Details["rule"] != rule || p.Details["line"] != line {
				t.Errorf("%s of the %s: %+v", test.line, by, p)
			}
			if e, denial := parse(t, write(by, test.has)).Resolve(q, in); denial != nil {
				t.Errorf("control: %s of the %s: %+v, %v", test.has, by, e, denial)
			}
		}
	}
}

// TestRefusals: what is not about one name of a list.
func TestRefusals(t *testing.T) {
	for name, test := range map[string]struct {
		text     string
		tenant   string
		document string
		task     string
		rule     string // "" where it is taken
	}{
		"the operator":                         {write("", ""), policy.Operator, ``, ``, ""},
		"a tenant":                             {write("", ""), "acme", ``, ``, ""},
		"no such tenant":                       {write("", ""), "other", ``, ``, "tenants"},
		"no such profile":                      {write("", ""), "acme", `{"executionProfile": "q"}`, ``, "profiles"},
		"a profile that the tenant lacks":      {strings.Replace(write("", ""), "profiles: all", "profiles: none", 1), "acme", `{"executionProfile": "p"}`, ``, "tenants.acme.profiles"},
		"a default that the tenant lacks":      {strings.Replace(write("", ""), "profiles: all", "profiles: none", 1), "acme", ``, ``, "tenants.acme.profiles"},
		"a policy that is not installed":       {write("", ""), "acme", `{"networkPolicy": "open"}`, ``, "installation.egress"},
		"a task with another policy":           {write("", ""), "acme", `{"networkPolicy": "strict"}`, `{"networkPolicy": "release-egress"}`, "document"},
		"a default policy that is not there":   {write("tenant", "egress: [release-egress]"), "acme", ``, ``, "tenants.acme.egress"},
		"the profile's first policy":           {write("profile", "egress: [release-egress, strict]"), "acme", ``, ``, ""},
		"a provider that is too weak":          {write("tenant", "isolation: machine"), "acme", `{"sandbox": {"provider": "docker"}}`, ``, "tenants.acme.isolation"},
		"no provider that is strong enough":    {write("tenant", "isolation: machine"), "acme", ``, ``, "tenants.acme.isolation"},
		"a template of an image not to be had": {write("tenant", "images: [i2]"), "acme", `{"sandbox": {"template": "t1"}}`, ``, "tenants.acme.images"},
	} {
		q := query(t, test.tenant, "", "", "")
		if test.document != "" {
			q = query(t, test.tenant, "", test.document, "")
		}
		if test.task != "" {
			q = query(t, test.tenant, "", test.document, `{"security": `+test.task+`}`)
		}
		e, denial := parse(t, test.text).Resolve(q, installed())
		switch {
		case test.rule == "" && denial != nil:
			t.Errorf("%s: %v", name, denial)
		case test.rule != "" && (denial == nil || !strings.Contains(denial.Rule, test.rule) && !strings.Contains(denial.Detail, test.rule)):
			t.Errorf("%s: %+v, %v, want the rule %s", name, e, denial, test.rule)
		}
	}
	var none *policy.Profiles
	if _, denial := none.Resolve(policy.Query{Tenant: policy.Operator}, installed()); denial == nil {
		t.Error("no profiles allow something")
	}
	if r, err := new(policy.Effective).Route(t.Context(), "run.shell", policy.Call{}, nil); err != nil || r.Route != api.RouteDenied {
		t.Errorf("the zero policy runs a shell: %+v, %v", r, err)
	}
}

// TestDefault: without a file the operator's requests get what they got without
// profiles.
func TestDefault(t *testing.T) {
	e, denial := policy.Default().Resolve(policy.Query{Tenant: policy.Operator, TaskType: "call.agent"}, installed())
	if denial != nil || e.EffectiveProfile != "standard" || e.NetworkPolicy != "strict" || e.Provider != "docker" || e.Backend != "docker" || e.Image != "sallyport/agent:dev" ||
		e.Tier != "standard" || e.Agent != "pi" || fmt.Sprint(e.ProviderKeys) != "[all]" || fmt.Sprint(e.Github) != "{[read repo-write] [all]}" ||
		e.TTLMS != 0 || e.CostUSD != 0 || e.Approval != "none" || e.Tenant != "" || len(e.Narrowings) != 0 {
		t.Errorf("%+v, %v", e, denial)
	}
	if _, denial := policy.Default().Resolve(policy.Query{Tenant: "acme"}, installed()); denial == nil {
		t.Error("there is a tenant without a file")
	}
}

// TestAskFaults: a wish that cannot be understood is refused, in every place; the same
// without the fault is taken.
func TestAskFaults(t *testing.T) {
	const good = `{"sandbox": {"mode": "per-task"}}`
	places := map[string]func(string) error{
		"document": func(s string) error {
			_, err := policy.ReadDocument(json.RawMessage(`{"security": `+s+`}`), nil)
			return err
		},
		"metadata": func(s string) error {
			_, err := policy.ReadDocument(json.RawMessage(`{"metadata": {"lightWorkflow": {"security": `+s+`}}}`), nil)
			return err
		},
		"beside": func(s string) error { _, err := policy.ReadDocument(nil, json.RawMessage(s)); return err },
		"task": func(s string) error {
			_, err := policy.ReadTask(json.RawMessage(`{"security": ` + s + `}`))
			return err
		},
		"task metadata": func(s string) error {
			_, err := policy.ReadTask(json.RawMessage(`{"metadata": {"lightWorkflow": {"security": ` + s + `, "artifacts": ["x"]}, "other": 1}}`))
			return err
		},
	}
	for place, read := range places {
		if err := read(good); err != nil {
			t.Errorf("%s: %v", place, err)
		}
		for bad, want := range map[string]string{
			`[]`: "must be an object", `"x"`: "must be an object", `null`: "must be an object", `{"sandbx": {}}`: `did you mean "sandbox"`, `{"Sandbox": {}}`: "unknown member",
			`{"sandbox": {"mode": "per-task"}, "sandbox": {"mode": "none"}}`: "given twice", `{"sandbox": {"mode": "per-task", "mode": "none"}}`: "given twice",
			`{"sandbox": {"mode": "strict"}}`: "none of per-task", `{"sandbox": {"mode": 1}}`: "must be a string", `{"sandbox": {"mode": null}}`: "must be a string",
			`{"sandbox": {"ttl": "2 hours"}}`: "not a time", `{"sandbox": {"ttl": "PT0S"}}`: "not a time", `{"sandbox": {"ttl": "-1h"}}`: "not a time",
			`{"sandbox": {"reuse": "tenant"}}`: "shared by nobody else", `{"sandbox": {"reason": "a\u0000b"}}`: "printable",
			`{"secrets": "all"}`: "array", `{"secrets": null}`: "array", `{"secrets": ["../x"]}`: "lower-case", `{"github": {"repositories": ["shop"]}}`: "OWNER/NAME",
			`{"github": {"repositories": ["*/*"]}}`: "OWNER/NAME", `{"budgets": {"costUsd": 0}}`: "not an amount", `{"budgets": {"costUsd": -1}}`: "not an amount",
			`{"budgets": {"costUsd": 1e9}}`: "not an amount", `{"budgets": {"tokens": 1.5}}`: "whole number", `{"providerKeys": ["path"]}`: "variable",
			`{"executionProfile": "../p"}`: "not a name", `{"networkPolicy": "a b"}`: "lower-case",
		} {
			if err := read(bad); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %s: %v, want %q", place, bad, err, want)
			}
		}
	}
	for _, bad := range []string{
		`{"Security": {}}`, `{"metadata": {"LightWorkflow": {}}}`, `{"Metadata": {}}`, `{"metadata": {"lightWorkflow": {"secuirty": {}}}}`, `{"metadata": 1}`, `[]`, `{`, `{} {}`,
		`{"security": {"executionProfile": "a"}, "metadata": {"lightWorkflow": {"security": {"executionProfile": "b"}}}}`,
		`{"security": {"networkPolicy": "a"}, "metadata": {"lightWorkflow": {"security": {"networkPolicy": "b"}}}}`,
	} {
		if _, err := policy.ReadTask(json.RawMessage(bad)); err == nil {
			t.Errorf("%s is taken", bad)
		}
	}
}

// TestSpellingsMeet: of two spellings the stricter wish counts.
func TestSpellingsMeet(t *testing.T) {
	for _, task := range []string{
		`{"security": {"sandbox": {"mode": "none", "ttl": "PT1H"}}, "metadata": {"lightWorkflow": {"security": {"sandbox": {"mode": "per-task", "ttl": "PT2H"}}}}}`,
		`{"security": {"sandbox": {"mode": "per-task", "ttl": "2h"}}, "metadata": {"lightWorkflow": {"security": {"sandbox": {"mode": "none", "ttl": "1h"}}}}}`,
		`{"security": {"sandbox": {"mode": "none", "reuse": "never", "ttl": "1h"}}}`,
	} {
		e, denial := parse(t, write("", "")).Resolve(query(t, "acme", "", "", task), installed())
		if denial != nil || e.SandboxMode != "per-task" || e.TTLMS != 3600_000 {
			t.Errorf("%s: %+v, %v", task, e, denial)
		}
	}
}
