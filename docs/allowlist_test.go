package docs_test

import (
	"encoding/json"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestAllowlistKeysAreDocumented holds docs/allowlist.md against the keys of the
// JSON Schema, which package allowlist holds to what it reads.
func TestAllowlistKeysAreDocumented(t *testing.T) {
	type object struct{ Properties map[string]json.RawMessage }
	var schema struct {
		object
		Defs map[string]object `json:"$defs"`
	}
	if err := json.Unmarshal([]byte(read(t, "docs/allowlist.schema.json")), &schema); err != nil {
		t.Fatal(err)
	}
	doc := read(t, "docs/allowlist.md")
	forms := section(t, doc, "Keys")
	rows := table(t, forms)
	for _, keys := range []map[string]json.RawMessage{schema.Properties, schema.Defs["policy"].Properties} {
		for key := range keys {
			if _, ok := rows[key]; !ok || len(keys) < 3 {
				t.Errorf("docs/allowlist.md: the key %s has no row", key)
			}
		}
	}
	for key := range schema.Defs["entry"].Properties {
		if !strings.Contains(forms, key+": ") {
			t.Errorf("docs/allowlist.md: no form of a host has the key %s", key)
		}
	}
	var budgets object
	if err := json.Unmarshal(schema.Defs["policy"].Properties["budgets"], &budgets); err != nil {
		t.Fatal(err)
	}
	same(t, "docs/allowlist.md, budgets", table(t, section(t, doc, "Budgets")), slices.Collect(maps.Keys(budgets.Properties)))
}

var (
	goLink    = regexp.MustCompile(`\]\(\.\./(firewall/[a-z_/]+\.go)\)`)
	hostWord  = regexp.MustCompile("`\\.?([a-z0-9-]+(?:\\.[a-z0-9-]+)+)`")
	addrWord  = regexp.MustCompile(`\b\d+\.\d+\.\d+\.\d+\b`)
	paragraph = regexp.MustCompile(`\n\n|\n(?:- |\d+\. )`)
)

// TestListsAreWhereTheyAreSaidToBe requires that a file below firewall/ that
// docs/allowlist.md links to for a list of names or addresses holds one of those
// that the paragraph names.
func TestListsAreWhereTheyAreSaidToBe(t *testing.T) {
	found := 0
	for _, text := range paragraph.Split(read(t, "docs/allowlist.md"), -1) {
		examples := addrWord.FindAllString(text, -1)
		for _, m := range hostWord.FindAllStringSubmatch(text, -1) {
			examples = append(examples, m[1])
		}
		for _, m := range goLink.FindAllStringSubmatch(text, -1) {
			found++
			list := read(t, m[1])
			if !slices.ContainsFunc(examples, func(e string) bool { return strings.Contains(list, e) }) {
				t.Errorf("docs/allowlist.md links to %s, which holds none of %v", m[1], examples)
			}
		}
	}
	if found < 5 {
		t.Errorf("only %d links were found", found)
	}
}
