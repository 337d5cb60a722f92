package github

import (
	"strconv"
	"strings"

	"github.com/vektah/gqlparser/v2/ast"
)

// zero is the value of a field that nothing fills in: null where that may be, but a
// connection is an empty one.
func zero(t *ast.Type) any {
	switch name := t.Name(); {
	case t.NamedType == "" && t.NonNull:
		return []any{}
	case strings.HasSuffix(name, "Connection") && t.NamedType != "":
		none, _ := connect(name, nil)(nil)
		return none
	case !t.NonNull:
		return nil
	case name == "Boolean":
		return false
	case name == "Int":
		return 0
	case graph.Types[name].Kind == ast.Enum:
		return graph.Types[name].EnumValues[0].Name
	}
	return ""
}

// connect serves a list in pages; a cursor is a place in it.
func connect(kind string, all []*node) fieldFunc {
	return func(args map[string]any) (any, error) {
		from, to := 0, len(all)
		if after, ok := args["after"].(string); ok {
			at, err := strconv.Atoi(after)
			if err != nil {
				return nil, unprocessable("`%s` does not appear to be a valid cursor.", after)
			}
			from = min(max(at, 0), to)
		}
		if n, ok := number(args["first"]); ok {
			to = min(from+n, to)
		}
		if n, ok := number(args["last"]); ok {
			from = max(from, to-n)
		}
		info := map[string]any{"hasNextPage": to < len(all), "hasPreviousPage": from > 0}
		if from < to {
			info["startCursor"], info["endCursor"] = strconv.Itoa(from+1), strconv.Itoa(to)
		}
		edges := []*node{}
		for _, one := range all[from:to] {
			edges = append(edges, &node{strings.TrimSuffix(kind, "Connection") + "Edge", map[string]any{"node": one}})
		}
		return &node{kind, map[string]any{
			"nodes": all[from:to], "edges": edges, "totalCount": len(all), "pageInfo": &node{"PageInfo", info},
		}}, nil
	}
}

// number reads an Int, which is an int64 in a query and a float64 in a variable.
func number(v any) (int, bool) {
	switch n := v.(type) {
	case int64:
		return int(n), true
	case float64:
		return int(n), true
	case int:
		return n, true
	}
	return 0, false
}

// typeNode is what introspection tells of a type: its fields by name, from which a
// client concludes what the server can do.
func typeNode(d *ast.Definition) *node {
	if d == nil {
		return nil
	}
	named := func(kind, name string) *node { return &node{kind, map[string]any{"name": name, "isDeprecated": false}} }
	fields, inputs, values := []*node{}, []*node{}, []*node{}
	for _, f := range d.Fields {
		switch {
		case d.Kind == ast.InputObject:
			inputs = append(inputs, named("__InputValue", f.Name))
		case !strings.HasPrefix(f.Name, "__"):
			fields = append(fields, named("__Field", f.Name))
		}
	}
	for _, v := range d.EnumValues {
		values = append(values, named("__EnumValue", v.Name))
	}
	return &node{"__Type", map[string]any{
		"name": d.Name, "kind": string(d.Kind), "fields": fields, "inputFields": inputs, "enumValues": values,
	}}
}
