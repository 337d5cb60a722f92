package audit

import (
	"bytes"
	"encoding/json"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// TestSchema holds docs/audit-record.schema.json against what is written: it takes the
// record of a run of which little is known, and a full one; it knows the fields of Record,
// wants each of them, and takes no other.
func TestSchema(t *testing.T) {
	data, err := os.ReadFile("../../docs/audit-record.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	if err := c.AddResource("schema.json", doc); err != nil {
		t.Fatal(err)
	}
	schema, err := c.Compile("schema.json")
	if err != nil {
		t.Fatal(err)
	}
	if id := doc.(map[string]any)["$id"]; id != TypeRun {
		t.Errorf("it is of the type %v, not %s", id, TypeRun)
	}
	full := sample(0)
	full.Tokens = []TokenScope{{}}
	for _, r := range []Record{{Outcome: Outcome{State: StateLost}}, full} {
		text, err := json.Marshal(r.filled())
		if err != nil {
			t.Fatal(err)
		}
		v, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		if err := schema.Validate(v); err != nil {
			t.Errorf("%s: %v", text, err)
		}
		v.(map[string]any)["commit"] = "main"
		if err := schema.Validate(v); err == nil {
			t.Error("control: it takes any commit")
		}
	}
	sameFields(t, "", doc.(map[string]any), reflect.TypeFor[Record]())
}

// sameFields compares the properties of a schema with the fields of a type, and below.
func sameFields(t *testing.T, at string, schema map[string]any, of reflect.Type) {
	t.Helper()
	if items, ok := schema["items"].(map[string]any); ok {
		schema, of = items, of.Elem()
	}
	properties, ok := schema["properties"].(map[string]any)
	if !ok {
		return
	}
	if schema["additionalProperties"] != false {
		t.Errorf("%s takes fields of any name", at)
	}
	var fields, required []string
	for i := range of.NumField() {
		name, option, _ := strings.Cut(of.Field(i).Tag.Get("json"), ",")
		fields = append(fields, name)
		if option == "" {
			required = append(required, name)
		}
		p, ok := properties[name].(map[string]any)
		if !ok {
			t.Errorf("%s lacks %s", at, name)
			continue
		}
		if p["description"] == nil {
			t.Errorf("%s.%s is not described", at, name)
		}
		sameFields(t, at+"."+name, p, of.Field(i).Type)
	}
	if len(properties) != len(fields) {
		t.Errorf("%s has %d properties and %d fields", at, len(properties), len(fields))
	}
	var wanted []string
	for _, name := range schema["required"].([]any) {
		wanted = append(wanted, name.(string))
	}
	if !slices.Equal(wanted, required) {
		t.Errorf("%s requires %v; always there are %v", at, wanted, required)
	}
}
