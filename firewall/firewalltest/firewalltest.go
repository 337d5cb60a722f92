// Package firewalltest makes policies and names for tests, and fails a test where it
// cannot. It is for tests only.
package firewalltest

import (
	"strings"
	"testing"

	"sallyport/firewall"
	"sallyport/firewall/allowlist"
)

// Anything has a policy p that allows all that can be allowed: the floor and the
// resolvers hold even so.
const Anything = "version: 1\npolicies:\n  p: {allow: any}\n"

// Family has policies that extend one another.
const Family = `
version: 1
groups:
  code: [.git.example, {host: raw.git.example, ports: [80]}]
  docs: [docs.example, .wiki.example]
  mirror: [{host: .git.example, ports: [80]}]
policies:
  base: {allow: [code, docs]}
  less: {extends: base, remove: [docs, gist.git.example, .old.git.example]}
  back: {extends: less, allow: [docs, keep.old.git.example]}
  more: {extends: base, allow: [mirror, {host: api.git.example, ports: [443, 8443]}]}
  wide: {extends: less, allow: any}
  shut: {extends: wide, remove: [.paste.example, one.example]}
  again: {extends: shut, allow: [.paste.example]}
  trim: {allow: [code, docs], remove: [.git.example]}
  mine: {extends: base, remove: [.git.example], allow: [{host: .git.example, private: [10.0.0.0/8]}]}
`

// Budgeted has policies with budgets and without.
const Budgeted = `
version: 1
policies:
  strict:
    allow: [.wild.example, one.example]
    budgets:
      upload: 1MB
      download: 1.5GiB
      hostUpload: 512B
      hostDownload: 10kB
      wildcardNames: 3
      wildcardBytes: 1KiB
      connections: 2
      connectionsPerSecond: 5
      queriesPerSecond: 50
  more: {extends: strict, budgets: {upload: 2MB, hostUpload: none}}
  same: {extends: strict}
  none: {allow: [.wild.example, one.example]}
  open: {allow: any}
`

// Policies are those of an allowlist with this text.
func Policies(t testing.TB, text string) *firewall.Policies {
	t.Helper()
	return File(t, text).Policies
}

// File is an allowlist with this text.
func File(t testing.TB, text string) *allowlist.File {
	t.Helper()
	file, err := allowlist.Parse(strings.NewReader(text), "allowlist.yaml")
	if err != nil {
		t.Fatal(err)
	}
	return file
}

// Policy is the policy of that name in an allowlist with this text.
func Policy(t testing.TB, text, name string) *firewall.Policy {
	t.Helper()
	policy, ok := Policies(t, text).Policy(name)
	if !ok {
		t.Fatalf("no policy %q", name)
	}
	return policy
}

// Name is the host name that s spells.
func Name(t testing.TB, s string) firewall.Name {
	t.Helper()
	name, err := firewall.ParseName(s)
	if err != nil {
		t.Fatalf("ParseName(%q): %v", s, err)
	}
	return name
}

// WantDecision checks one decision; an empty rule is not compared.
func WantDecision(t testing.TB, p *firewall.Policy, host string, port uint16, v firewall.Verdict, r firewall.Reason, rule string) {
	t.Helper()
	d := p.Decide(Name(t, host), port)
	if d.Verdict != v || d.Reason != r || rule != "" && d.Rule != rule {
		t.Errorf("%s: Decide(%s, %d) = %+v; want %s, %s, rule %q", p.Name(), host, port, d, v, r, rule)
	}
	if d.Allowed() != (d.Reason == firewall.ReasonListed || d.Reason == firewall.ReasonOpen) {
		t.Errorf("%s: Decide(%s, %d) = %+v: verdict and reason contradict each other", p.Name(), host, port, d)
	}
}
