package firewall

import (
	"go/build"
	"slices"
	"strings"
	"testing"
)

func mustParse(t testing.TB, text string) *Policies {
	t.Helper()
	ps, err := Parse(strings.NewReader(text), "allowlist.yaml")
	if err != nil {
		t.Fatal(err)
	}
	return ps
}

func mustPolicy(t testing.TB, text, name string) *Policy {
	t.Helper()
	p, ok := mustParse(t, text).Policy(name)
	if !ok {
		t.Fatalf("no policy %q", name)
	}
	return p
}

func mustName(t testing.TB, s string) Name {
	t.Helper()
	n, err := ParseName(s)
	if err != nil {
		t.Fatalf("ParseName(%q): %v", s, err)
	}
	return n
}

// wantDecision checks one decision; an empty rule is not compared.
func wantDecision(t testing.TB, p *Policy, host string, port uint16, v Verdict, r Reason, rule string) {
	t.Helper()
	d := p.Decide(mustName(t, host), port)
	if d.Verdict != v || d.Reason != r || rule != "" && d.Rule != rule {
		t.Errorf("%s: Decide(%s, %d) = %+v; want %s, %s, rule %q", p.Name(), host, port, d, v, r, rule)
	}
	if d.Allowed() != (d.Reason == ReasonListed || d.Reason == ReasonOpen) {
		t.Errorf("%s: Decide(%s, %d) = %+v: verdict and reason contradict each other", p.Name(), host, port, d)
	}
}

// TestImports keeps the package at the bottom of the module: what it imports of ours
// imports nothing of ours.
func TestImports(t *testing.T) {
	for dir, may := range map[string][]string{
		".": {"sallyport/internal/strictyaml", "sallyport/firewall/budget"}, "../internal/strictyaml": nil, "budget": nil,
	} {
		pkg, err := build.ImportDir(dir, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range pkg.Imports {
			if !slices.Contains(may, path) && (path == "sallyport" || strings.HasPrefix(path, "sallyport/")) {
				t.Errorf("%s imports %s", pkg.Name, path)
			}
			if path == "net" || path == "net/http" || path == "os/exec" {
				t.Errorf("%s imports %s: it resolves and dials nothing", pkg.Name, path)
			}
		}
	}
}
