// Package secrets finds the secrets of runs by name, in the moment in which they are
// needed: what a provider changes is in force with the next run. A name has one place.
// Two providers that have it are an error, for whoever rotates a secret in one of them
// would leave the other in force.
package secrets

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"sallyport/executor/redact"
)

// Bounds of a value in bytes, without the line end that a file may close with. A shorter
// one could not be redacted, and what redacts a longer one would take too much memory.
const (
	MinLength = redact.PartLength
	MaxLength = 8 << 10
)

// A Provider holds secrets. It is safe for concurrent use.
type Provider interface {
	// Secret returns the value that a name has now; false where the provider has no such
	// name. An error may tell where and why, but nothing of a value.
	Secret(ctx context.Context, name string) (value string, ok bool, err error)
}

// A lister is a provider that can say which secrets it has.
type lister interface{ Names() ([]string, error) }

// A Source is a provider and what the operator calls it, such as "the environment".
type Source struct {
	Name string
	Provider
}

// Sources are all that secrets come from. Without any there are no secrets.
type Sources []Source

// A Reason says why a secret is not to be had.
type Reason string

// The reasons.
const (
	Unknown    Reason = "unknown"    // nobody has it
	Ambiguous  Reason = "ambiguous"  // two have it
	Unreadable Reason = "unreadable" // who has it cannot give it; may pass
	Unfit      Reason = "unfit"      // it is too short, too long, or no text
)

// An Error is about one secret. Its text has where providers are, and no value.
type Error struct {
	Name   string
	Reason Reason
	Err    error
}

func (e *Error) Error() string { return fmt.Sprintf("the secret %q: %v", e.Name, e.Err) }
func (e *Error) Unwrap() error { return e.Err }

// Names of secrets, and of the variables whose keys are secrets, too.
var nameForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$`)

// Get returns the value of a name, as its provider has it. The error is an *Error.
func (s Sources) Get(ctx context.Context, name string) (string, error) {
	if !nameForm.MatchString(name) {
		return "", &Error{name, Unknown, errors.New("a name is of letters, digits, - and _, at most 64 of them")}
	}
	value, from := "", ""
	for _, source := range s {
		v, ok, err := source.Secret(ctx, name)
		switch {
		case err != nil:
			return "", &Error{name, Unreadable, fmt.Errorf("%s: %w", source.Name, err)}
		case ok && from != "":
			return "", &Error{name, Ambiguous, fmt.Errorf("%s and %s both have it; remove it from one", from, source.Name)}
		case ok:
			value, from = v, source.Name
		}
	}
	if from == "" {
		return "", &Error{name, Unknown, fmt.Errorf("no provider has it: put it into %s", s)}
	}
	if err := fit(value); err != nil {
		return "", &Error{name, Unfit, fmt.Errorf("%s: %w", from, err)}
	}
	return value, nil
}

// fit refuses what could not be redacted or given to a process.
func fit(value string) error {
	switch n := len(Text(value)); {
	case n < MinLength:
		return fmt.Errorf("it has %d bytes; it must have %d at least, or it could not be taken out of what is kept of a run", n, MinLength)
	case n > MaxLength:
		return fmt.Errorf("it has %d bytes; it may have %d", n, MaxLength)
	case strings.ContainsRune(value, 0):
		return errors.New("it holds a NUL byte, which no variable can hold")
	}
	return nil
}

// Text is a value without the line end that a file may close with.
func Text(value string) string { return strings.TrimRight(value, "\r\n") }

// Have reports whether a run that asks for a name would be given a value, or be told
// why not: of a name that nobody has neither is so.
func (s Sources) Have(ctx context.Context, name string) (value string, ok bool) {
	value, err := s.Get(ctx, name)
	var e *Error
	return value, !errors.As(err, &e) || e.Reason != Unknown
}

// Known are those of the names that a provider has, or may have.
func (s Sources) Known(names []string) []string {
	known := map[string]bool{}
	for _, source := range s {
		all := names // of one that cannot say
		if l, ok := source.Provider.(lister); ok {
			if listed, err := l.Names(); err == nil {
				all = listed
			}
		}
		for _, name := range all {
			known[name] = true
		}
	}
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool { return !known[name] })
}

// Check looks at all secrets that can be listed, and returns who has each.
func (s Sources) Check(ctx context.Context) (map[string]string, error) {
	found := map[string]string{}
	var errs []error
	for _, source := range s {
		l, ok := source.Provider.(lister)
		if !ok {
			continue
		}
		names, err := l.Names()
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", source.Name, err))
		}
		for _, name := range names {
			found[name] = source.Name
		}
	}
	for _, name := range slices.Sorted(maps.Keys(found)) {
		if _, err := s.Get(ctx, name); err != nil {
			errs = append(errs, err)
		}
	}
	return found, errors.Join(errs...)
}

func (s Sources) String() string {
	var names []string
	for _, source := range s {
		names = append(names, source.Name)
	}
	if len(names) == 0 {
		return "a provider, of which there is none"
	}
	return strings.Join(names, " or ")
}
