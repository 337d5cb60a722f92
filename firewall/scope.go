package firewall

import (
	"iter"
	"strings"
)

// A Scope is a name alone or with every subdomain.
type Scope struct {
	Name       Name
	Subdomains bool
}

// String is the scope as a file writes it, with a leading dot for subdomains.
func (s Scope) String() string {
	if s.Subdomains {
		return "." + s.Name.s
	}
	return s.Name.s
}

// Covers reports whether every name in t is in s.
func (s Scope) Covers(t Scope) bool {
	if s == t {
		return true
	}
	return s.Subdomains && (t.Name == s.Name || strings.HasSuffix(t.Name.s, "."+s.Name.s))
}

// Wider are the other scopes that cover s, the nearest first.
func (s Scope) Wider() iter.Seq[Scope] {
	return func(yield func(Scope) bool) {
		name, ok := s.Name.s, true
		if s.Subdomains {
			name, ok = parent(name)
		}
		for ; ok && strings.Contains(name, "."); name, ok = parent(name) {
			if !yield(Scope{Name{name}, true}) {
				return
			}
		}
	}
}
