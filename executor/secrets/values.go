package secrets

import (
	"context"
	"maps"
	"slices"
	"strings"
)

// Prefix begins the variables of the environment that hold secrets.
const Prefix = "SALLYPORT_SECRET_"

// Values are secrets that are known from the start, by name.
type Values map[string]string

// Environment are the secrets in variables that begin with Prefix:
// SALLYPORT_SECRET_GITHUB_RELEASE_TOKEN is github-release-token.
func Environment(variables map[string]string) Values {
	found := Values{}
	for variable, value := range variables {
		if name, ok := strings.CutPrefix(variable, Prefix); ok {
			found[strings.ReplaceAll(strings.ToLower(name), "_", "-")] = value
		}
	}
	return found
}

// Secret implements Provider.
func (v Values) Secret(_ context.Context, name string) (string, bool, error) {
	value, ok := v[name]
	return value, ok && value != "", nil
}

// Names are those that have a value.
func (v Values) Names() ([]string, error) {
	names := slices.Sorted(maps.Keys(v))
	return slices.DeleteFunc(names, func(name string) bool { return v[name] == "" }), nil
}
