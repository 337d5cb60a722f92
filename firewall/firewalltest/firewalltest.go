// Package firewalltest makes policies and names for tests, and fails a test where it
// cannot. It is for tests only.
package firewalltest

import (
	"strings"
	"testing"

	"sallyport/firewall"
)

// Policies are those of an allowlist with this text.
func Policies(t testing.TB, text string) *firewall.Policies {
	t.Helper()
	policies, err := firewall.Parse(strings.NewReader(text), "allowlist.yaml")
	if err != nil {
		t.Fatal(err)
	}
	return policies
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
