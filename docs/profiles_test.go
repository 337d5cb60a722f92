package docs_test

import (
	"encoding/json"
	"maps"
	"slices"
	"testing"

	"sallyport/executor/policy"
)

// TestProfilesAreDocumented holds docs/profiles.md against the keys of the JSON Schema,
// which package policy holds to what it reads, and against the table of task types.
func TestProfilesAreDocumented(t *testing.T) {
	var schema struct {
		Properties map[string]json.RawMessage
		Defs       struct{ Bounds map[string]json.RawMessage } `json:"$defs"`
	}
	if err := json.Unmarshal([]byte(read(t, "docs/profiles.schema.json")), &schema); err != nil {
		t.Fatal(err)
	}
	doc := read(t, "docs/profiles.md")
	same(t, "docs/profiles.md, keys", table(t, section(t, doc, "The file")), slices.Collect(maps.Keys(schema.Defs.Bounds)))
	types := table(t, section(t, doc, "Where a task runs"))
	same(t, "docs/profiles.md, types of task", types, slices.Collect(maps.Keys(policy.TaskTypes())))
	for name, kind := range policy.TaskTypes() {
		if row := types[name]; len(row) > 1 && (kind == "host") != (row[1] == "host; no approval needed") || len(row) > 1 && (kind == "sandbox") != (row[1] == "sandbox") {
			t.Errorf("docs/profiles.md: %s is %s, its row says %q", name, kind, row[1])
		}
	}
	same(t, "docs/profiles.md, modes", table(t, section(t, doc, "Modes")), []string{"per-task", "workflow-session", "effectful-tasks", "none"})
}
