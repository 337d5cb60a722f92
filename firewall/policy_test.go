package firewall_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"sallyport/firewall"
	"sallyport/firewall/allowlist"
	"sallyport/firewall/firewalltest"
)

// TestZeroValuesDeny asks values that nobody has filled.
//
// probe: P4
// oracle: the decisions of policies that nobody has filled
func TestZeroValuesDeny(t *testing.T) {
	github := firewalltest.Name(t, "github.com")
	for name, p := range map[string]*firewall.Policy{"nil": nil, "zero": new(firewall.Policy)} {
		for _, port := range []uint16{0, 80, 443, 65535} {
			if d := p.Decide(github, port); d.Allowed() || d.Verdict != firewall.Deny || d.Reason != firewall.ReasonNotListed {
				t.Errorf("%s policy: Decide(github.com, %d) = %+v", name, port, d)
			}
		}
		if d := p.DecideDNS(github); d.Allowed() {
			t.Errorf("%s policy: DecideDNS = %+v", name, d)
		}
		if p.Any() || p.PassECH() || p.Digest() != "" || p.Name() != "" || len(p.Explain(github, 443)) != 0 {
			t.Errorf("%s policy is not empty", name)
		}
	}
	for name, ps := range map[string]*firewall.Policies{"nil": nil, "zero": new(firewall.Policies)} {
		if p, ok := ps.Policy("strict"); ok || p != nil {
			t.Errorf("%s Policies have a policy", name)
		}
		if len(ps.Names()) != 0 || ps.Digest() != "" {
			t.Errorf("%s Policies are not empty", name)
		}
	}
	if (firewall.Decision{}).Allowed() {
		t.Error("the zero Decision allows")
	}
	open := firewalltest.Policy(t, firewalltest.Anything, "p")
	if d := open.Decide(firewall.Name{}, 443); d.Allowed() || d.Reason != firewall.ReasonBadName {
		t.Errorf("Decide(no name) = %+v", d)
	}
	if d := open.DecideDNS(firewall.Name{}); d.Allowed() || d.Reason != firewall.ReasonBadName {
		t.Errorf("DecideDNS(no name) = %+v", d)
	}
	if ps, ok := firewalltest.Policies(t, firewalltest.Anything).Policy("P"); ok || ps != nil {
		t.Error("the names of policies fold their case")
	}
}

func TestDecide(t *testing.T) {
	ps := firewalltest.Policies(t, firewalltest.Family)
	tests := []struct {
		policy, host string
		port         uint16
		reason       firewall.Reason
		rule         string
	}{
		{"base", "git.example", 443, firewall.ReasonListed, ".git.example"},
		{"base", "a.b.git.example", 443, firewall.ReasonListed, ".git.example"},
		{"base", "raw.git.example", 443, firewall.ReasonListed, ".git.example"}, // entries of one host add up
		{"base", "raw.git.example", 80, firewall.ReasonListed, "raw.git.example"},
		{"base", "raw.git.example", 22, firewall.ReasonPortNotAllowed, "raw.git.example"},
		{"base", "a.raw.git.example", 80, firewall.ReasonPortNotAllowed, ".git.example"},
		{"base", "docs.example", 443, firewall.ReasonListed, "docs.example"},
		{"base", "a.docs.example", 443, firewall.ReasonNotListed, ""}, // that name alone
		{"base", "wiki.example", 443, firewall.ReasonListed, ".wiki.example"},
		{"base", "xwiki.example", 443, firewall.ReasonNotListed, ""},
		{"base", "other.example", 443, firewall.ReasonNotListed, ""},

		{"less", "docs.example", 443, firewall.ReasonNotListed, ""},
		{"less", "git.example", 443, firewall.ReasonListed, ".git.example"},
		{"less", "gist.git.example", 443, firewall.ReasonRemoved, "gist.git.example"},
		{"less", "a.gist.git.example", 443, firewall.ReasonListed, ".git.example"},
		{"less", "old.git.example", 443, firewall.ReasonRemoved, ".old.git.example"},
		{"less", "a.b.old.git.example", 443, firewall.ReasonRemoved, ".old.git.example"},

		{"back", "docs.example", 443, firewall.ReasonListed, "docs.example"},
		{"back", "gist.git.example", 443, firewall.ReasonRemoved, "gist.git.example"},
		{"back", "keep.old.git.example", 443, firewall.ReasonListed, "keep.old.git.example"},
		{"back", "a.keep.old.git.example", 443, firewall.ReasonRemoved, ".old.git.example"},

		{"more", "git.example", 80, firewall.ReasonListed, ".git.example"},
		{"more", "git.example", 443, firewall.ReasonListed, ".git.example"},
		{"more", "api.git.example", 8443, firewall.ReasonListed, "api.git.example"},
		{"more", "api.git.example", 80, firewall.ReasonListed, ".git.example"},

		{"wide", "gist.git.example", 443, firewall.ReasonRemoved, "gist.git.example"},
		{"wide", "docs.example", 443, firewall.ReasonOpen, "any"},
		{"wide", "anything.net", 80, firewall.ReasonOpen, "any"},
		{"wide", "anything.net", 8080, firewall.ReasonPortNotAllowed, "any"},
		{"wide", "git.example", 80, firewall.ReasonOpen, "any"}, // no entry, but any
		{"wide", "git.example", 22, firewall.ReasonPortNotAllowed, ".git.example"},

		{"shut", "x.paste.example", 443, firewall.ReasonRemoved, ".paste.example"},
		{"shut", "one.example", 443, firewall.ReasonRemoved, "one.example"},
		{"shut", "a.one.example", 443, firewall.ReasonOpen, "any"},
		{"again", "x.paste.example", 443, firewall.ReasonListed, ".paste.example"},
		{"again", "x.paste.example", 80, firewall.ReasonPortNotAllowed, ".paste.example"}, // back with one port only

		{"trim", "raw.git.example", 80, firewall.ReasonNotListed, ""},
		{"trim", "docs.example", 443, firewall.ReasonListed, "docs.example"},
		{"mine", "git.example", 443, firewall.ReasonListed, ".git.example"},
	}
	for _, tt := range tests {
		p, ok := ps.Policy(tt.policy)
		if !ok {
			t.Fatalf("no policy %q", tt.policy)
		}
		v := firewall.Deny
		if tt.reason == firewall.ReasonListed || tt.reason == firewall.ReasonOpen {
			v = firewall.Allow
		}
		firewalltest.WantDecision(t, p, tt.host, tt.port, v, tt.reason, tt.rule)

		d, ms := p.Decide(firewalltest.Name(t, tt.host), tt.port), p.Explain(firewalltest.Name(t, tt.host), tt.port)
		if d.Reason == firewall.ReasonNotListed {
			if slices.ContainsFunc(ms, func(m firewall.Match) bool { return m.Decides || m.Reason != firewall.ReasonRemoved }) {
				t.Errorf("%s: Explain(%s, %d) = %+v; want nothing but what was taken out", tt.policy, tt.host, tt.port, ms)
			}
			continue
		}
		if len(ms) == 0 || !ms[0].Decides || ms[0].Reason != d.Reason || ms[0].Line != d.Line || ms[0].Rule != d.Rule {
			t.Errorf("%s: Explain(%s, %d) = %+v; want first what decides, %+v", tt.policy, tt.host, tt.port, ms, d)
		}
		if slices.ContainsFunc(ms[1:], func(m firewall.Match) bool { return m.Decides }) {
			t.Errorf("%s: Explain(%s, %d): two matches decide", tt.policy, tt.host, tt.port)
		}
		if dns := p.DecideDNS(firewalltest.Name(t, tt.host)); v == firewall.Allow && !dns.Allowed() {
			t.Errorf("%s: %s:%d is allowed and does not resolve: %+v", tt.policy, tt.host, tt.port, dns)
		}
	}
	mine, _ := ps.Policy("mine")
	if ok, detail := mine.Decide(firewalltest.Name(t, "git.example"), 443).JudgeAddr(netip.MustParseAddr("10.1.2.3")); !ok {
		t.Errorf("the policy's own entry does not admit its range: %s", detail)
	}
}

func TestExplainListsAll(t *testing.T) {
	p := firewalltest.Policy(t, firewalltest.Family, "more")
	ms := p.Explain(firewalltest.Name(t, "api.git.example"), 80)
	var got []string
	for _, m := range ms {
		got = append(got, fmt.Sprintf("%s %s %s %d %v %v", m.Reason, m.Rule, m.Group, m.Line, m.Ports, m.Decides))
	}
	want := []string{
		"listed .git.example mirror 6 [80] true",
		"port_not_listed api.git.example  11 [443 8443] false",
		"port_not_listed .git.example code 4 [443] false",
	}
	slices.Sort(got[1:])
	slices.Sort(want[1:])
	if !slices.Equal(got, want) {
		t.Errorf("Explain gives\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	ms[0].Ports[0] = 1 // what is given out is the caller's
	firewalltest.WantDecision(t, p, "api.git.example", 80, firewall.Allow, firewall.ReasonListed, ".git.example")
	floor := p.Explain(firewalltest.Name(t, "metadata.google.internal"), 443)
	if len(floor) != 1 || floor[0].Reason != firewall.ReasonFloorName || !floor[0].Decides || floor[0].Rule == "" {
		t.Errorf("Explain of a floor name = %+v", floor)
	}
}

func TestDigest(t *testing.T) {
	base := `
version: 1
groups:
  a: [.x.example, y.example]
  b: [{host: .z.example, ports: [80, 443], private: [10.0.0.0/8, 192.168.0.0/16]}]
policies:
  p: {allow: [a, b]}
`
	digest := func(text string) string { return firewalltest.Policy(t, text, "p").Digest() }
	want := digest(base)
	if !strings.HasPrefix(want, "sha256:") || len(want) != len("sha256:")+64 {
		t.Errorf("digest %q", want)
	}
	same := map[string]string{
		"comments": "# comment\n" + base,
		"CRLF":     strings.ReplaceAll(base, "\n", "\r\n"),
		"BOM":      "\ufeff" + base,
		"groups": `{version: 1, groups: {one: [y.example], two: [.X.Example.]}, policies: {
            p: {allow: [{host: .z.example, private: [192.168.0.0/16, 10.0.0.0/8, 10.1.0.0/16], ports: [443, 80]}, two, one], ech: refuse}}}`,
		"extends": base + "  q: {extends: p}\n  r: {extends: q, remove: [y.example]}\n",
		"split": `{version: 1, groups: {a: [.x.example, {host: .z.example, ports: [80], private: [10.0.0.0/8, 192.168.0.0/16]}],
            b: [{host: .z.example, private: [10.0.0.0/8, 192.168.0.0/16]}]}, policies: {p: {allow: [b, a, y.example]}}}`,
	}
	for name, text := range same {
		if got := digest(text); got != want {
			t.Errorf("%s changes the digest", name)
		}
	}
	child, _ := firewalltest.Policies(t, same["extends"]).Policy("q")
	if child.Digest() != want {
		t.Error("a policy that only extends another has another digest")
	}
	seen := map[string]string{want: "the base"}
	for name, text := range map[string]string{
		"a host":      strings.Replace(base, "y.example", "w.example", 1),
		"a dot":       strings.Replace(base, "y.example", ".y.example", 1),
		"a port":      strings.Replace(base, "[80, 443]", "[443]", 1),
		"a range":     strings.Replace(base, "10.0.0.0/8", "10.0.0.0/9", 1),
		"less ranges": strings.Replace(base, "10.0.0.0/8, ", "", 1),
		"a group":     strings.Replace(base, "allow: [a, b]", "allow: [a, b, v.example]", 1),
		"ech":         strings.Replace(base, "[a, b]}", "[a, b], ech: pass}", 1),
		"any":         strings.Replace(base, "[a, b]", "[a, b, any]", 1),
		"any, no ech": strings.Replace(base, "[a, b]}", "[a, b, any], ech: refuse}", 1),
		"remove":      strings.Replace(base, "[a, b]}", "[a, b], remove: [v.x.example]}", 1),
		"remove tree": strings.Replace(base, "[a, b]}", "[a, b], remove: [.v.x.example]}", 1),
		"remove all":  strings.Replace(base, "[a, b]}", "[a, b], remove: [y.example]}", 1),
	} {
		got := digest(text)
		if other, ok := seen[got]; ok {
			t.Errorf("%s and %s have one digest", name, other)
		}
		seen[got] = name
	}
	all := firewalltest.Policies(t, base).Digest()
	if all != firewalltest.Policies(t, same["comments"]).Digest() {
		t.Error("a comment changes the digest of the file")
	}
	if all == firewalltest.Policies(t, same["extends"]).Digest() || all == firewalltest.Policies(t, strings.Replace(base, "  p:", "  q:", 1)).Digest() {
		t.Error("another policy, or another name, leaves the digest of the file")
	}
}

func TestDecideCost(t *testing.T) {
	p := firewalltest.Policy(t, firewalltest.Family, "shut")
	for _, s := range []string{"git.example", "a.b.c.d.git.example", "unlisted.net", "x.paste.example", "metadata.google.internal"} {
		n := firewalltest.Name(t, s)
		if got := testing.AllocsPerRun(100, func() { p.Decide(n, 443); p.DecideDNS(n) }); got != 0 {
			t.Errorf("Decide(%s) allocates %v times", s, got)
		}
	}
}

func BenchmarkDecide(b *testing.B) {
	ps, err := allowlist.Load("../allowlist.yaml")
	if err != nil {
		b.Fatal(err)
	}
	strict, _ := ps.Policy("strict")
	for _, s := range []string{"api.github.com", "unlisted.example.net", "a.b.c.d.e.f.g.h.pypi.org"} {
		n := firewalltest.Name(b, s)
		b.Run(s, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				strict.Decide(n, 443)
			}
		})
	}
}
