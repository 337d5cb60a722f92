// Package envvars reads what an operator sets by variables of the environment into
// a struct, and says in the operator's words what is wrong with them.
package envvars

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"reflect"
	"time"

	"github.com/caarlos0/env/v11"
)

// Prefix is what the name of each variable begins with.
const Prefix = "SALLYPORT_"

// Parse fills a struct, which into points to, from an environment in the form of
// os.Environ. Its fields have the tags of github.com/caarlos0/env without the prefix;
// text that a type takes apart itself must give an error that says what would be
// right. A variable that is empty is one that is not set, as a Compose file passes it
// on. Parse returns the variables that are set, with and without the prefix. The
// error has a line for each that is wrong.
func Parse(into any, environ []string) (map[string]string, error) {
	variables := env.ToMap(environ)
	maps.DeleteFunc(variables, func(_, value string) bool { return value == "" })
	err := env.ParseWithOptions(into, env.Options{Prefix: Prefix, Environment: variables})
	var several env.AggregateError
	if !errors.As(err, &several) {
		return variables, err
	}
	var faults []error
	for _, err := range several.Errors {
		var wrong env.ParseError
		if errors.As(err, &wrong) {
			err = fault(reflect.TypeOf(into).Elem(), wrong, variables)
		}
		faults = append(faults, err)
	}
	return variables, errors.Join(faults...)
}

// fault says what is wrong with a variable.
func fault(of reflect.Type, wrong env.ParseError, variables map[string]string) error {
	name := variableOf(of, wrong)
	if name == "" {
		return wrong
	}
	name = Prefix + name
	if right := rightFor(wrong.Type); right != "" {
		return fmt.Errorf("%s is %q: write %s", name, variables[name], right)
	}
	return fmt.Errorf("%s is %q: %w", name, variables[name], wrong.Err)
}

// variableOf is the tag of the field that an error is about, "" where there is none.
func variableOf(of reflect.Type, wrong env.ParseError) string {
	for i := range of.NumField() {
		field := of.Field(i)
		tag := field.Tag.Get("env")
		switch {
		case tag != "" && field.Name == wrong.Name && field.Type == wrong.Type:
			return tag
		case tag == "" && field.IsExported() && field.Type.Kind() == reflect.Struct:
			if tag := variableOf(field.Type, wrong); tag != "" {
				return tag
			}
		}
	}
	return ""
}

// rightFor says what a type takes whose error would be that of Go's parser, else "".
func rightFor(t reflect.Type) string {
	switch {
	case t == reflect.TypeFor[time.Duration]():
		return "a time with its unit, such as 90s, 30m or 6h"
	case t == reflect.TypeFor[netip.Prefix]():
		return "a network, such as 198.18.0.0/16"
	case t.PkgPath() != "":
		return "" // it has its own words
	}
	switch t.Kind() {
	case reflect.Int, reflect.Int32, reflect.Int64:
		return "a whole number"
	case reflect.Float64:
		return "a number, such as 2 or 0.5"
	case reflect.Bool:
		return "true or false"
	}
	return ""
}
