package allowlist_test

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/rogpeppe/go-internal/txtar"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"sallyport/firewall/allowlist"
	"sallyport/firewall/firewalltest"
)

const schemaPath = "../../docs/allowlist.schema.json"

func schema(t *testing.T) (*jsonschema.Schema, any) {
	t.Helper()
	data, err := os.ReadFile(schemaPath)
	if err != nil {
		t.Fatal(err)
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("allowlist.schema.json", doc); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile("allowlist.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	return s, doc
}

// fits reports what the schema has against a file.
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

// TestSchemaTakesWhatIsRight requires that no editor complains of a right file.
func TestSchemaTakesWhatIsRight(t *testing.T) {
	s, _ := schema(t)
	texts := map[string][]byte{"firewalltest.Family": []byte(firewalltest.Family), "forms": []byte(`version: 1
groups:
  empty: []
  5-a_b: [.A.example, a.example., {host: xn--bcher-kva.example, ports: [80, 443], private: [10.0.0.0/8, "fc00::/7"]}]
policies:
  p:
    allow: [any, 5-a_b, c.example, {host: v.example, via: corp-1}]
    ech: refuse
    budgets: {upload: 1.5GiB, download: none, connections: 5, wildcardNames: none, wildcardBytes: 1KiB}
  q: {extends: p, remove: [5-a_b, c.example]}
  r: {allow: any}
  none: {allow: []}
  less: {extends: p, remove: [gone, gone, b.example]}
  same: {extends: p, remove: []}
`)}
	for _, path := range []string{"../../allowlist.yaml", "../../compose/demo-allowlist.yaml"} {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		texts[path] = data
	}
	for name, text := range texts {
		if _, err := allowlist.Parse(bytes.NewReader(text), name); err != nil {
			t.Errorf("%s is no right file: %v", name, err)
		}
		if err := fits(s, text); err != nil {
			t.Errorf("the schema refuses %s: %v", name, err)
		}
	}
}

// TestSchemaRefusesFaults runs the files of testdata/faults by the schema. The
// ones that it takes are in testdata/beyond-schema.txt: they hold what a schema
// cannot know, such as names that do not match and hosts of the floor.
func TestSchemaRefusesFaults(t *testing.T) {
	s, _ := schema(t)
	paths, err := filepath.Glob("testdata/faults/*.txtar")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no test data: %v", err)
	}
	var beyond strings.Builder
	files := 0
	for _, path := range paths {
		archive, err := txtar.ParseFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for i := 0; i+1 < len(archive.Files); i += 2 {
			files++
			if fits(s, archive.Files[i].Data) == nil {
				fmt.Fprintf(&beyond, "%s/%s\n", strings.TrimSuffix(filepath.Base(path), ".txtar"), archive.Files[i].Name)
			}
		}
	}
	const golden = "testdata/beyond-schema.txt"
	if *update {
		if err := os.WriteFile(golden, []byte(beyond.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if beyond.String() != string(want) {
		t.Errorf("of %d wrong files the schema takes\n%swant\n%s", files, beyond.String(), want)
	}
}

var keysHere = regexp.MustCompile(`the keys here are ([A-Za-z, ]+)`)

// TestSchemaHasTheParsersKeys asks the parser for the keys that it knows in each
// place, by one that it does not know.
func TestSchemaHasTheParsersKeys(t *testing.T) {
	_, doc := schema(t)
	for _, test := range []struct{ text, place string }{
		{"version: 1\nzzzzzzzz: 1\npolicies: {p: {allow: any}}", ""},
		{"version: 1\npolicies: {p: {allow: any, zzzzzzzz: 1}}", "$defs policy"},
		{"version: 1\npolicies: {p: {allow: [{host: a.example, zzzzzzzz: 1}]}}", "$defs entry"},
		{"version: 1\npolicies: {p: {allow: any, budgets: {zzzzzzzz: 1}}}", "$defs policy properties budgets"},
	} {
		_, err := allowlist.Parse(strings.NewReader(test.text), "f")
		if err == nil {
			t.Fatalf("%q is right", test.text)
		}
		m := keysHere.FindStringSubmatch(err.Error())
		if m == nil {
			t.Fatalf("no keys in %v", err)
		}
		known := strings.Split(strings.TrimSpace(m[1]), ", ")
		slices.Sort(known)
		at := doc.(map[string]any)
		for word := range strings.FieldsSeq(test.place) {
			at = at[word].(map[string]any)
		}
		has := slices.Sorted(maps.Keys(at["properties"].(map[string]any)))
		if !slices.Equal(known, has) {
			t.Errorf("docs/allowlist.schema.json, %q: the parser knows %v, the schema %v", test.place, known, has)
		}
	}
}
