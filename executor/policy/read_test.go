package policy_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/rogpeppe/go-internal/txtar"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"sallyport/executor/policy"
	"sallyport/firewall"
	"sallyport/firewall/allowlist"
)

var update = flag.Bool("update", false, "write what the tests got to testdata")

const faultsPath = "testdata/faults.txtar"

// TestFaults compares all faults of a file with what is written beside it.
func TestFaults(t *testing.T) {
	archive, err := txtar.ParseFile(faultsPath)
	if err != nil || len(archive.Files) < 10 {
		t.Fatal(err)
	}
	for i := 0; i+1 < len(archive.Files); i += 2 {
		file, want := archive.Files[i], &archive.Files[i+1]
		ps, err := policy.Parse(bytes.NewReader(file.Data), file.Name)
		if err == nil || ps != nil {
			t.Errorf("%s is right", file.Name)
			continue
		}
		if got := err.Error() + "\n"; *update {
			want.Data = []byte(got)
		} else if got != string(want.Data) {
			t.Errorf("%s has the faults\n%s\nwant\n%s", file.Name, got, want.Data)
		}
	}
	if *update {
		if err := os.WriteFile(faultsPath, txtar.Format(archive), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// TestDigest: what changes no effect changes no digest.
func TestDigest(t *testing.T) {
	text := example(t, "yaml profiles")
	first := parse(t, text)
	for change, same := range map[[2]string]bool{
		{"# The most", "# Less"}: true, {"time: 4h", "time: PT4H"}: true, {"[acme/*]", "[ACME/*]"}: true,
		{"time: 4h", "time: 5h"}: false, {"policyVersion: 7", "policyVersion: 8"}: false, {"default: standard ", "default: release-sandbox "}: false,
		{"/sallyport/acme]", "/sallyport/other]"}: false, {"waiting: 20", "waiting: 21"}: false, {"stored: 50GiB", "stored: 51200MiB"}: true,
		{"backend: docker", "backend: local"}: false, {"tier: standard", "tier: large"}: false, {"env: GH_TOKEN", "file: GH_TOKEN"}: false, {"secrets: [github-release-token]", "secrets: none"}: false,
	} {
		changed := strings.Replace(text, change[0], change[1], 1)
		if changed == text {
			t.Fatalf("the example has no %q", change[0])
		}
		if got := parse(t, changed).Digest() == first.Digest(); got != same {
			t.Errorf("%q for %q: the same digest: %t", change[1], change[0], got)
		}
	}
}

func schema(t *testing.T) (*jsonschema.Schema, map[string]any) {
	t.Helper()
	data, err := os.ReadFile("../../docs/profiles.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("profiles.schema.json", doc); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile("profiles.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	return s, doc.(map[string]any)
}

func fits(s *jsonschema.Schema, text []byte) error {
	data, err := yaml.YAMLToJSON(text)
	if err != nil {
		return err
	}
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(data))
	if err != nil {
		return err
	}
	return s.Validate(v)
}

// TestSchema: it takes what is right and refuses each file of the faults; it has the
// keys and the types of task that the reader has.
func TestSchema(t *testing.T) {
	s, doc := schema(t)
	shipped, err := os.ReadFile("default.yaml")
	if err != nil {
		t.Fatal(err)
	}
	forms := []byte(`{version: 1, policyVersion: 2, default: p, service: {tokens: 5, profiles: [p]}, profiles: {p: {egress: none, tasks: all, ` +
		`time: 1h30m, idleTime: PT90S, costUsd: 0.5, gateways: [A.example.], images: ["r.example:5000/a/b@sha256:00"], approval: none, mode: none}}}`)
	for name, text := range map[string][]byte{"example": []byte(example(t, "yaml profiles")), "default": shipped, "forms": forms} {
		parse(t, string(text))
		if err := fits(s, text); err != nil {
			t.Errorf("the schema refuses %s: %v", name, err)
		}
	}
	archive, err := txtar.ParseFile(faultsPath)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(archive.Files); i += 2 {
		if f := archive.Files[i]; fits(s, f.Data) == nil && f.Name != "second.yaml" { // of which it sees the first
			t.Errorf("the schema takes %s", f.Name)
		}
	}
	for text, place := range map[string]string{
		"zzzzzzzz: 1": "", "service: {zzzzzzzz: 1}": "service", "tenants: {a: {zzzzzzzz: 1}}": "tenant",
		"providers: {a: {zzzzzzzz: 1}}": "provider", "templates: {a: {zzzzzzzz: 1}}": "template", "secrets: {a: {zzzzzzzz: 1}}": "secret", "profiles: {p: {zzzzzzzz: 1}}": "profile",
	} {
		_, err := policy.Parse(strings.NewReader(text), "f")
		m := regexp.MustCompile(`"zzzzzzzz"; the keys here are ([A-Za-z, ]+)`).FindStringSubmatch(fmt.Sprint(err))
		if m == nil {
			t.Fatalf("no keys in %v", err)
		}
		known := strings.Split(m[1], ", ")
		if place == "profile" { // which says itself why it has none
			known = slices.DeleteFunc(known, func(k string) bool { return k == "profiles" })
		}
		at := doc
		if place != "" {
			at = doc["$defs"].(map[string]any)[place].(map[string]any)
		}
		has := slices.Sorted(maps.Keys(at["properties"].(map[string]any)))
		if slices.Sort(known); !slices.Equal(known, has) {
			t.Errorf("docs/profiles.schema.json, %q: the reader knows %v, the schema %v", place, known, has)
		}
	}
	var types []string
	for name, kind := range policy.TaskTypes() {
		if kind != "host" {
			types = append(types, name)
		}
	}
	text, _ := json.Marshal(doc["$defs"].(map[string]any)["bounds"].(map[string]any)["tasks"])
	for _, name := range types {
		if !strings.Contains(string(text), `"`+name+`"`) {
			t.Errorf("docs/profiles.schema.json does not have the type of task %s", name)
		}
	}
	if strings.Count(string(text), ".")+strings.Count(string(text), `"browser"`)+strings.Count(string(text), `"command"`) < len(types) {
		t.Errorf("docs/profiles.schema.json: the types of task are %s", text)
	}
}

// TestExampleAllowlist: the release policy reaches its hosts, and nothing else.
func TestExampleAllowlist(t *testing.T) {
	policies, err := allowlist.Parse(strings.NewReader(example(t, "yaml allowlist")), "docs/profiles.md")
	if err != nil {
		t.Fatal(err)
	}
	p, _ := policies.Policy("release-egress")
	for host, want := range map[string]bool{
		"github.com": true, "api.github.com": true, "ghcr.io": true, "docker.io": true, "crates.io": true, "index.crates.io": true, "registry.npmjs.org": true,
		"gist.github.com": false, "example.com": false, "pypi.org": false,
	} {
		name, err := firewall.ParseName(host)
		if err != nil || p.Decide(name, 443).Allowed() != want {
			t.Errorf("%s: %v, %v", host, p.Decide(name, 443), err)
		}
	}
}

// FuzzParse: a file is taken or refused with faults that are in it; one that is taken is
// taken by the schema, too, and has a digest.
func FuzzParse(f *testing.F) {
	f.Add([]byte(example(f, "yaml profiles")))
	archive, err := txtar.ParseFile(faultsPath)
	if err != nil {
		f.Fatal(err)
	}
	for i := 0; i < len(archive.Files); i += 2 {
		f.Add(archive.Files[i].Data)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		ps, err := policy.Parse(bytes.NewReader(text), "f")
		if (ps == nil) == (err == nil) {
			t.Fatal(ps, err)
		}
		if err != nil {
			return
		}
		if ps.Digest() == "" || len(ps.Names()) == 0 {
			t.Errorf("taken without a profile: %q", text)
		}
		s, _ := schema(t)
		if err := fits(s, text); err != nil {
			t.Errorf("the schema refuses what is taken: %v", err)
		}
	})
}
