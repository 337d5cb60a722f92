package review_test

import (
	"fmt"
	"strings"
	"testing"

	"sallyport/firewall"
	"sallyport/firewall/allowlist"
	"sallyport/firewall/firewalltest"
	"sallyport/firewall/review"
)

// words gives a diff as lines.
func words(changes []review.PolicyDiff) string {
	var b strings.Builder
	for _, c := range changes {
		if c.Added {
			fmt.Fprintf(&b, "%s is new\n", c.Policy)
		}
		if c.Removed {
			fmt.Fprintf(&b, "%s is gone\n", c.Policy)
		}
		for _, r := range c.Opens {
			fmt.Fprintf(&b, "%s opens %s\n", c.Policy, r)
		}
		for _, r := range c.Closes {
			fmt.Fprintf(&b, "%s closes %s\n", c.Policy, r)
		}
		for _, d := range c.Budgets {
			fmt.Fprintf(&b, "%s %s %s, was %s, widens %t\n", c.Policy, d.Budget, d.Is, d.Was, d.Widens)
		}
		if c.ECH != "" {
			fmt.Fprintf(&b, "%s ech %s\n", c.Policy, c.ECH)
		}
	}
	return b.String()
}

func TestDiff(t *testing.T) {
	for _, test := range []struct{ name, old, new, want string }{
		{"nothing", "p: {allow: [.a.example]}", "p: {allow: [.a.example]}", ""},
		{"written otherwise", "p: {allow: [.a.example, b.example]}", "p: {allow: [b.example, {host: .A.example, ports: [443]}]}", ""},
		{"redundant", "p: {allow: [.a.example]}", "p: {allow: [.a.example, www.a.example]}", ""},
		{"host", "p: {allow: [a.example]}", "p: {allow: [a.example, b.example]}", "p opens b.example on port 443\n"},
		{"other host", "p: {allow: [a.example]}", "p: {allow: [b.example]}", "p opens b.example on port 443\np closes a.example on port 443\n"},
		{"subdomains", "p: {allow: [a.example]}", "p: {allow: [.a.example]}", "p opens the subdomains of a.example on port 443\n"},
		{"tree", "p: {allow: [b.example]}", "p: {allow: [b.example, .a.example, x.a.example, .y.a.example]}", "p opens .a.example on port 443\n"},
		{"wider", "p: {allow: [.b.a.example]}", "p: {allow: [.a.example]}", "p opens .a.example on port 443\n"},
		{"ports", "p: {allow: [.a.example]}", "p: {allow: [{host: .a.example, ports: [80, 443]}]}", "p opens .a.example on port 80\n"},
		{"port falls through", "p: {allow: [{host: .a.example, ports: [80, 443]}]}", "p: {allow: [{host: .a.example, ports: [80, 443]}, x.a.example]}", ""},
		{"ports together", "p: {allow: [b.example]}", "p: {allow: [b.example, {host: a.example, ports: [80, 443]}]}", "p opens a.example on port 80, 443\n"},
		{"private", "p: {allow: [a.example]}", "p: {allow: [{host: a.example, private: [10.0.0.0/8]}]}", "p opens a.example on port 443 at 10.0.0.0/8\n"},
		{"private narrower", "p: {allow: [{host: a.example, private: [10.0.0.0/8]}]}", "p: {allow: [{host: a.example, private: [10.1.0.0/16]}]}", "p closes a.example on port 443 at 10.0.0.0/8\n"},
		{"private and public", "p: {allow: [b.example]}", "p: {allow: [b.example, {host: a.example, private: [10.0.0.0/8]}]}", "p opens a.example on port 443, also at 10.0.0.0/8\n"},
		{"route", "p: {allow: [a.example]}", "p: {allow: [{host: a.example, via: corp}]}", "p opens a.example on port 443 by way of corp\np closes a.example on port 443\n"},
		{"any", "p: {allow: [a.example]}", "p: {allow: any, ech: refuse}", "p opens every host that no entry names (any) on port 80, 443\n"},
		{"any with ech", "p: {allow: [any, a.example], ech: refuse}", "p: {allow: any}", "p ech pass\n"},
		{"remove", "q: {allow: [.a.example]}\n  p: {extends: q}", "q: {allow: [.a.example]}\n  p: {extends: q, remove: [.x.a.example, y.a.example]}",
			"p closes .x.a.example on port 443\np closes y.a.example on port 443\n"},
		{"except", "q: {allow: [.a.example, b.example]}\n  p: {extends: q, remove: [.a.example]}", "q: {allow: [.a.example, b.example]}\n  p: {extends: q, remove: [.x.a.example, y.a.example]}",
			"p opens .a.example on port 443, but not .x.a.example, y.a.example\n"},
		{"policies", "p: {allow: [a.example]}", "q: {allow: [a.example]}",
			"p is gone\np closes a.example on port 443\nq is new\nq opens a.example on port 443\n"},
		{"budgets", "p: {allow: any, budgets: {upload: 10MB, connections: 5, queriesPerSecond: 9}}", "p: {allow: any, budgets: {upload: 20MB, connections: 4, wildcardNames: 3}}",
			"p upload 20MB, was 10MB, widens true\np wildcardNames 3, was none, widens false\np connections 4, was 5, widens false\np queriesPerSecond none, was 9, widens true\n"},
		{"resolver", "p: {allow: any}", "p: {allow: [any, dns.google]}", "p opens dns.google on port 443\n"},
		{"resolver tree", "p: {allow: any}", "p: {allow: [any, .dns.google]}", "p opens .dns.google on port 443\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			parse := func(policies string) *firewall.Policies {
				return firewalltest.Policies(t, "version: 1\npolicies:\n  "+policies+"\n")
			}
			old, new := parse(test.old), parse(test.new)
			if got := words(review.Diff(old, new)); got != test.want {
				t.Errorf("got\n%swant\n%s", got, test.want)
			}
			back := review.Diff(new, old)
			for i, c := range review.Diff(old, new) {
				if fmt.Sprint(c.Opens, c.Closes) != fmt.Sprint(back[i].Closes, back[i].Opens) {
					t.Errorf("backwards it is %+v, forwards %+v", back[i], c)
				}
			}
		})
	}
}

func TestDiffOfNothing(t *testing.T) {
	p := firewalltest.Policies(t, "version: 1\npolicies: {p: {allow: [a.example]}}")
	if got := review.Diff(nil, nil); len(got) != 0 {
		t.Errorf("Diff(nil, nil) = %+v", got)
	}
	if got := words(review.Diff(nil, p)); got != "p is new\np opens a.example on port 443\n" {
		t.Errorf("from nothing: %s", got)
	}
}

// FuzzDiff holds Diff against decisions: where it sees none, there is no
// difference for any name of the files, and where a name differs it sees one.
func FuzzDiff(f *testing.F) {
	f.Add(".a.example x.a.example", ".a.example", "w.x.a.example")
	f.Add("a.example", ".a.example", "a.example")
	f.Fuzz(func(t *testing.T, old, new, host string) {
		parse := func(list string) *firewall.Policies {
			ps, err := allowlist.Parse(strings.NewReader("version: 1\npolicies:\n  q: {allow: [.a.example, .b.example]}\n  p: {extends: q, allow: ["+strings.Join(strings.Fields(list), ", ")+"]}"), "f")
			if err != nil {
				return nil
			}
			return ps.Policies
		}
		n, err := firewall.ParseName(host)
		if err != nil {
			return
		}
		was, is := parse(old), parse(new)
		if was == nil || is == nil {
			return
		}
		a, _ := was.Policy("p")
		b, _ := is.Policy("p")
		differs := false
		for _, port := range []uint16{80, 443, 8443} {
			differs = differs || a.Decide(n, port).Allowed() != b.Decide(n, port).Allowed()
		}
		if differs && len(review.Diff(was, is)) == 0 {
			t.Errorf("%s is judged otherwise, and Diff sees nothing", n)
		}
		if a.Digest() == b.Digest() && len(review.Diff(was, is)) != 0 {
			t.Errorf("the digests are equal, and Diff sees %+v", review.Diff(was, is))
		}
	})
}
