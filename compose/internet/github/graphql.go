package github

import (
	_ "embed"
	"net/http"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/vektah/gqlparser/v2"
	"github.com/vektah/gqlparser/v2/ast"
	"github.com/vektah/gqlparser/v2/gqlerror"
	"github.com/vektah/gqlparser/v2/validator"
	"github.com/vektah/gqlparser/v2/validator/rules"
)

//go:embed schema.graphql
var schemaText string

// graph is the schema that queries are validated against.
var graph = gqlparser.MustLoadSchema(&ast.Source{Name: "schema.graphql", Input: schemaText})

// queryRules are the specification's without the one that GitHub does not follow: its command
// line asks for "state" of Issue and PullRequest in one query, which are of two types.
func queryRules() *rules.Rules {
	r := rules.NewDefaultRules()
	r.RemoveRule(rules.OverlappingFieldsCanBeMergedRule.Name)
	return r
}

// A node is an object of the graph: its type, and its fields by name. A field is a
// value, a *node, a list of nodes, or a func that finds one of them.
type node struct {
	kind   string
	fields map[string]any
}

// A fieldFunc finds a field's value by the arguments of the query.
type fieldFunc func(args map[string]any) (any, error)

// graphql answers POST /graphql.
func (c *call) graphql() (int, any, error) {
	c.limits("graphql")
	if c.caller.token == nil {
		return 0, nil, &apiError{status: 401, message: "This endpoint requires you to be authenticated."}
	}
	var v struct {
		Query         string
		OperationName string `json:"operationName"`
		Variables     map[string]any
	}
	if err := c.read(&v); err != nil {
		return 0, nil, err
	}
	doc, faults := gqlparser.LoadQueryWithRules(graph, v.Query, queryRules())
	if faults != nil {
		return http.StatusOK, object{"errors": each(faults, viewFault)}, nil
	}
	op := doc.Operations.ForName(v.OperationName)
	if op == nil {
		return http.StatusOK, object{"errors": []any{object{"message": "No operation named \"" + v.OperationName + "\""}}}, nil
	}
	vars, err := validator.VariableValues(graph, op, v.Variables)
	if err != nil {
		return http.StatusOK, object{"errors": []any{object{"message": err.Error()}}}, nil
	}
	q := &query{vars: vars, fragments: doc.Fragments}
	root := &node{"Query", c.queryFields()}
	if op.Operation == ast.Mutation {
		root = &node{"Mutation", c.mutationFields()}
	}
	c.note(op)
	data, _ := q.object(root, op.SelectionSet, nil)
	answer := object{"data": data}
	if q.errors != nil {
		answer["errors"] = q.errors
	}
	return http.StatusOK, answer, nil
}

// note writes the operation into the request log.
func (c *call) note(op *ast.OperationDefinition) {
	e, ok := c.ctx.Value(entryKey{}).(*entry)
	if !ok {
		return
	}
	names := []string{string(op.Operation)}
	for _, s := range op.SelectionSet {
		if f, ok := s.(*ast.Field); ok {
			names = append(names, f.Name)
		}
	}
	e.Operation = strings.Join(names, " ")
}

var noField = regexp.MustCompile(`^Cannot query field "(\w+)" on type "(\w+)"`)

// viewFault renders a query that the schema does not allow. GitHub's command line knows
// unknown fields by GitHub's words.
func viewFault(e *gqlerror.Error) any {
	message := e.Message
	if m := noField.FindStringSubmatch(message); m != nil {
		message = "Field '" + m[1] + "' doesn't exist on type '" + m[2] + "'"
	}
	return object{"message": message, "locations": e.Locations}
}

// A query is one under way.
type query struct {
	vars      map[string]any
	fragments ast.FragmentDefinitionList
	errors    []any
}

// object selects fields of a node. false means that a field which must not be
// null is, so that there is no object either.
func (q *query) object(n *node, set ast.SelectionSet, path []any) (object, bool) {
	out := object{}
	for _, f := range q.collect(n, set) {
		value, ok := q.field(n, f, append(slices.Clip(path), f.Alias))
		if !ok {
			return nil, false
		}
		if had, twice := out[f.Alias].(object); twice { // selected in several places
			if more, ok := value.(object); ok {
				merge(had, more)
				continue
			}
		}
		out[f.Alias] = value
	}
	return out, true
}

func merge(into, from object) {
	for name, value := range from {
		if a, ok := into[name].(object); ok {
			if b, ok := value.(object); ok {
				merge(a, b)
				continue
			}
		}
		into[name] = value
	}
}

// collect flattens the fragments that apply to a node.
func (q *query) collect(n *node, set ast.SelectionSet) []*ast.Field {
	var fields []*ast.Field
	for _, s := range set {
		switch s := s.(type) {
		case *ast.Field:
			if q.wanted(s.Directives) {
				fields = append(fields, s)
			}
		case *ast.InlineFragment:
			if q.wanted(s.Directives) && applies(n, s.TypeCondition) {
				fields = append(fields, q.collect(n, s.SelectionSet)...)
			}
		case *ast.FragmentSpread:
			if q.wanted(s.Directives) && applies(n, s.Definition.TypeCondition) {
				fields = append(fields, q.collect(n, s.Definition.SelectionSet)...)
			}
		}
	}
	return fields
}

// wanted follows @include and @skip.
func (q *query) wanted(list ast.DirectiveList) bool {
	for _, d := range list {
		if is, ok := d.ArgumentMap(q.vars)["if"].(bool); ok && is != (d.Name == "include") {
			return false
		}
	}
	return true
}

// applies says whether a node is of a type, or one of its kinds.
func applies(n *node, condition string) bool {
	if condition == "" || condition == n.kind {
		return true
	}
	for _, d := range graph.PossibleTypes[condition] {
		if d.Name == n.kind {
			return true
		}
	}
	return false
}

func (q *query) field(n *node, f *ast.Field, path []any) (any, bool) {
	if f.Name == "__typename" {
		return n.kind, true
	}
	value, filled := n.fields[f.Name]
	if find, ok := value.(func(map[string]any) (any, error)); ok {
		value = fieldFunc(find)
	}
	if find, ok := value.(fieldFunc); ok {
		var err error
		if value, err = find(f.ArgumentMap(q.vars)); err != nil {
			q.fail(err, f, path)
			return nil, !f.Definition.Type.NonNull
		}
	}
	switch f.Name {
	case "__type":
		name, _ := f.ArgumentMap(q.vars)["name"].(string)
		value, filled = typeNode(graph.Types[name]), true
	case "__schema":
		value, filled = &node{"__Schema", map[string]any{"queryType": typeNode(graph.Query), "mutationType": typeNode(graph.Mutation)}}, true
	}
	if !filled {
		value = zero(f.Definition.Type)
	}
	return q.complete(value, f.Definition.Type, f, path)
}

// complete brings a value into the form that the query selects.
func (q *query) complete(value any, t *ast.Type, f *ast.Field, path []any) (any, bool) {
	if n, ok := value.(*node); ok && n == nil || value == nil {
		return nil, !t.NonNull
	}
	if n, ok := value.(*node); ok {
		out, ok := q.object(n, f.SelectionSet, path)
		if !ok {
			return nil, !t.NonNull
		}
		return out, true
	}
	list := reflect.ValueOf(value)
	if list.Kind() != reflect.Slice {
		return value, true
	}
	out := make([]any, 0, list.Len())
	for i := range list.Len() {
		one, ok := q.complete(list.Index(i).Interface(), t.Elem, f, append(slices.Clip(path), i))
		if !ok {
			return nil, !t.NonNull
		}
		out = append(out, one)
	}
	return out, true
}

// fail notes an error as GitHub words it.
func (q *query) fail(err error, f *ast.Field, path []any) {
	e := asAPIError(err)
	message := e.message
	for _, d := range e.details {
		d := d.(object)
		if text, ok := d["message"].(string); ok {
			message = text
		} else {
			message = strings.TrimSpace(strings.ReplaceAll(d["code"].(string), "_", " ") + " " + d["field"].(string))
		}
	}
	one := object{"message": message, "path": path, "locations": []any{object{"line": f.Position.Line, "column": f.Position.Column}}}
	if e.kind != "" {
		one["type"] = e.kind
	}
	if e.kind == "FORBIDDEN" {
		one["extensions"] = object{"saml_failure": false}
	}
	q.errors = append(q.errors, one)
}
