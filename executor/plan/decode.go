package plan

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"unicode/utf8"

	"sallyport/executor/api"
)

// MaxRequest is the longest body of a request, in bytes.
const MaxRequest = 8 << 20

// Decode reads a request strictly: one JSON object, field names exactly as
// documented, none unknown, none twice, nothing behind it. The problem names the
// field at fault and says what would be right.
func Decode(body []byte) (api.Request, *api.Problem) {
	return DecodeAs[api.Request](body, `{"prompt": "...", "config": {"model": "provider/model"}}`)
}

// DecodeAs reads a body of another type as strictly; example is one that is right.
func DecodeAs[T any](body []byte, example string) (T, *api.Problem) {
	var req T
	if len(bytes.TrimSpace(body)) == 0 {
		return req, invalid("", "the body is empty; it must be a JSON object such as %s", example)
	}
	if !utf8.Valid(body) {
		return req, invalid("", "the body is not valid UTF-8")
	}
	if err := json.Unmarshal(body, &req); err != nil { // first, as it bounds the depth
		return req, explain(err, example)
	}
	return req, checkNames(body, reflect.TypeFor[T](), example)
}

// invalid is a problem of a request that cannot be understood.
func invalid(field, format string, args ...any) *api.Problem {
	return refuse(http.StatusBadRequest, api.CodeInvalidRequest, field, fmt.Sprintf(format, args...))
}

func refuse(status int, code api.Code, field, detail string) *api.Problem {
	p := &api.Problem{Type: "about:blank", Title: http.StatusText(status), Status: status, Code: code, Detail: detail, Details: map[string]any{}}
	if field != "" {
		p.Details["field"] = field
	}
	return p
}

// checkNames walks over the whole body, which is JSON, and refuses what
// encoding/json lets pass: a name that is unknown, in other case, or there twice.
func checkNames(body []byte, typ reflect.Type, example string) *api.Problem {
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber()
	t, err := d.Token()
	if err != nil {
		return explain(err, example)
	}
	if t != json.Delim('{') {
		return invalid("", "the body is null; it must be a JSON object such as %s", example)
	}
	return checkObject(d, "", typ)
}

// checkObject checks an object whose brace has been read; typ is the struct that
// it will fill, or nil where any name will do.
func checkObject(d *json.Decoder, path string, typ reflect.Type) *api.Problem {
	seen := map[string]bool{}
	for d.More() {
		t, err := d.Token()
		if err != nil {
			return explain(err, "")
		}
		name := t.(string) // the decoder lets nothing else be a name
		field := strings.TrimPrefix(path+"."+name, ".")
		if seen[name] {
			return invalid(field, "the field %q is given twice", field)
		}
		seen[name] = true
		next, known := member(typ, name)
		if !known {
			return unknown(typ, field, name)
		}
		if p := checkValue(d, field, next); p != nil {
			return p
		}
	}
	return end(d)
}

func checkValue(d *json.Decoder, path string, typ reflect.Type) *api.Problem {
	t, err := d.Token()
	if err != nil {
		return explain(err, "")
	}
	switch t {
	case json.Delim('{'):
		return checkObject(d, path, typ)
	case json.Delim('['):
		for d.More() {
			if p := checkValue(d, path, nil); p != nil {
				return p
			}
		}
		return end(d)
	}
	return nil
}

func end(d *json.Decoder) *api.Problem {
	if _, err := d.Token(); err != nil {
		return explain(err, "")
	}
	return nil
}

// member returns the type of the named field of typ where that is a struct, and
// whether the name may be used at all.
func member(typ reflect.Type, name string) (reflect.Type, bool) {
	if typ != nil && typ.Kind() == reflect.Pointer {
		typ = typ.Elem()
	}
	if typ == nil || typ.Kind() != reflect.Struct {
		return nil, true
	}
	for f := range typ.Fields() {
		if jsonName(f) == name {
			return f.Type, true
		}
	}
	return nil, false
}

func jsonName(f reflect.StructField) string {
	name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	return name
}

func unknown(typ reflect.Type, field, name string) *api.Problem {
	if typ.Kind() == reflect.Pointer {
		typ = typ.Elem()
	}
	var names []string
	for f := range typ.Fields() {
		names = append(names, jsonName(f))
	}
	i := slices.IndexFunc(names, func(n string) bool { return strings.EqualFold(n, name) })
	if i >= 0 {
		return invalid(field, "unknown field %q; it is spelt %q", field, names[i])
	}
	p := invalid(field, "unknown field %q; known here are %s", field, strings.Join(names, ", "))
	p.Details["known"] = names
	return p
}

// explain says in the caller's words what encoding/json found.
func explain(err error, example string) *api.Problem {
	var syntax *json.SyntaxError
	var typ *json.UnmarshalTypeError
	switch {
	case errors.As(err, &typ) && typ.Field == "":
		return invalid("", "the body is %s; it must be a JSON object such as %s", article(typ.Value), example)
	case errors.As(err, &typ):
		return invalid(typ.Field, "%s is %s; it must be %s", typ.Field, article(typ.Value), wanted(typ.Type))
	case errors.As(err, &syntax):
		return invalid("", "the body is not JSON: %v, at byte %d", syntax, syntax.Offset)
	}
	return invalid("", "the body is not JSON: %v", err)
}

func article(value string) string {
	switch value {
	case "array", "object":
		return "an " + value
	case "bool":
		return "a boolean"
	}
	return "a " + value
}

func wanted(typ reflect.Type) string {
	switch typ.Kind() {
	case reflect.String:
		return "a string"
	case reflect.Bool:
		return "true or false"
	case reflect.Slice:
		return "an array of strings"
	case reflect.Struct, reflect.Map, reflect.Pointer:
		return "an object"
	}
	return "a whole number"
}
