package firewall

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
)

// TestZeroValuesDeny asks values that nobody has filled.
//
// probe: P4
// oracle: the decisions of policies that nobody has filled
func TestZeroValuesDeny(t *testing.T) {
	github := mustName(t, "github.com")
	for name, p := range map[string]*Policy{"nil": nil, "zero": new(Policy)} {
		for _, port := range []uint16{0, 80, 443, 65535} {
			if d := p.Decide(github, port); d.Allowed() || d.Verdict != Deny || d.Reason != ReasonNotListed {
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
	for name, ps := range map[string]*Policies{"nil": nil, "zero": new(Policies)} {
		if p, ok := ps.Policy("strict"); ok || p != nil {
			t.Errorf("%s Policies have a policy", name)
		}
		if len(ps.Names()) != 0 || ps.Digest() != "" || len(ps.Warnings()) != 0 {
			t.Errorf("%s Policies are not empty", name)
		}
	}
	if (Decision{}).Allowed() {
		t.Error("the zero Decision allows")
	}
	open := mustPolicy(t, everything, "p")
	if d := open.Decide(Name{}, 443); d.Allowed() || d.Reason != ReasonBadName {
		t.Errorf("Decide(no name) = %+v", d)
	}
	if d := open.DecideDNS(Name{}); d.Allowed() || d.Reason != ReasonBadName {
		t.Errorf("DecideDNS(no name) = %+v", d)
	}
	if ps, ok := mustParse(t, everything).Policy("P"); ok || ps != nil {
		t.Error("the names of policies fold their case")
	}
}

const family = `
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

func TestDecide(t *testing.T) {
	ps := mustParse(t, family)
	tests := []struct {
		policy, host string
		port         uint16
		reason       Reason
		rule         string
	}{
		{"base", "git.example", 443, ReasonListed, ".git.example"},
		{"base", "a.b.git.example", 443, ReasonListed, ".git.example"},
		{"base", "raw.git.example", 443, ReasonListed, ".git.example"}, // entries of one host add up
		{"base", "raw.git.example", 80, ReasonListed, "raw.git.example"},
		{"base", "raw.git.example", 22, ReasonPortNotAllowed, "raw.git.example"},
		{"base", "a.raw.git.example", 80, ReasonPortNotAllowed, ".git.example"},
		{"base", "docs.example", 443, ReasonListed, "docs.example"},
		{"base", "a.docs.example", 443, ReasonNotListed, ""}, // that name alone
		{"base", "wiki.example", 443, ReasonListed, ".wiki.example"},
		{"base", "xwiki.example", 443, ReasonNotListed, ""},
		{"base", "other.example", 443, ReasonNotListed, ""},

		{"less", "docs.example", 443, ReasonNotListed, ""},
		{"less", "git.example", 443, ReasonListed, ".git.example"},
		{"less", "gist.git.example", 443, ReasonRemoved, "gist.git.example"},
		{"less", "a.gist.git.example", 443, ReasonListed, ".git.example"},
		{"less", "old.git.example", 443, ReasonRemoved, ".old.git.example"},
		{"less", "a.b.old.git.example", 443, ReasonRemoved, ".old.git.example"},

		{"back", "docs.example", 443, ReasonListed, "docs.example"},
		{"back", "gist.git.example", 443, ReasonRemoved, "gist.git.example"},
		{"back", "keep.old.git.example", 443, ReasonListed, "keep.old.git.example"},
		{"back", "a.keep.old.git.example", 443, ReasonRemoved, ".old.git.example"},

		{"more", "git.example", 80, ReasonListed, ".git.example"},
		{"more", "git.example", 443, ReasonListed, ".git.example"},
		{"more", "api.git.example", 8443, ReasonListed, "api.git.example"},
		{"more", "api.git.example", 80, ReasonListed, ".git.example"},

		{"wide", "gist.git.example", 443, ReasonRemoved, "gist.git.example"},
		{"wide", "docs.example", 443, ReasonOpen, "any"},
		{"wide", "anything.net", 80, ReasonOpen, "any"},
		{"wide", "anything.net", 8080, ReasonPortNotAllowed, "any"},
		{"wide", "git.example", 80, ReasonOpen, "any"}, // no entry, but any
		{"wide", "git.example", 22, ReasonPortNotAllowed, ".git.example"},

		{"shut", "x.paste.example", 443, ReasonRemoved, ".paste.example"},
		{"shut", "one.example", 443, ReasonRemoved, "one.example"},
		{"shut", "a.one.example", 443, ReasonOpen, "any"},
		{"again", "x.paste.example", 443, ReasonListed, ".paste.example"},
		{"again", "x.paste.example", 80, ReasonPortNotAllowed, ".paste.example"}, // back with one port only

		{"trim", "raw.git.example", 80, ReasonNotListed, ""},
		{"trim", "docs.example", 443, ReasonListed, "docs.example"},
		{"mine", "git.example", 443, ReasonListed, ".git.example"},
	}
	for _, tt := range tests {
		p, ok := ps.Policy(tt.policy)
		if !ok {
			t.Fatalf("no policy %q", tt.policy)
		}
		v := Deny
		if tt.reason == ReasonListed || tt.reason == ReasonOpen {
			v = Allow
		}
		wantDecision(t, p, tt.host, tt.port, v, tt.reason, tt.rule)

		d, ms := p.Decide(mustName(t, tt.host), tt.port), p.Explain(mustName(t, tt.host), tt.port)
		if d.Reason == ReasonNotListed {
			if slices.ContainsFunc(ms, func(m Match) bool { return m.Decides || m.Reason != ReasonRemoved }) {
				t.Errorf("%s: Explain(%s, %d) = %+v; want nothing but what was taken out", tt.policy, tt.host, tt.port, ms)
			}
			continue
		}
		if len(ms) == 0 || !ms[0].Decides || ms[0].Reason != d.Reason || ms[0].Line != d.Line || ms[0].Rule != d.Rule {
			t.Errorf("%s: Explain(%s, %d) = %+v; want first what decides, %+v", tt.policy, tt.host, tt.port, ms, d)
		}
		if slices.ContainsFunc(ms[1:], func(m Match) bool { return m.Decides }) {
			t.Errorf("%s: Explain(%s, %d): two matches decide", tt.policy, tt.host, tt.port)
		}
		if dns := p.DecideDNS(mustName(t, tt.host)); v == Allow && !dns.Allowed() {
			t.Errorf("%s: %s:%d is allowed and does not resolve: %+v", tt.policy, tt.host, tt.port, dns)
		}
	}
	mine, _ := ps.Policy("mine")
	if ok, detail := mine.Decide(mustName(t, "git.example"), 443).JudgeAddr(netip.MustParseAddr("10.1.2.3")); !ok {
		t.Errorf("the policy's own entry does not admit its range: %s", detail)
	}
}

func TestExplainListsAll(t *testing.T) {
	p := mustPolicy(t, family, "more")
	ms := p.Explain(mustName(t, "api.git.example"), 80)
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
	wantDecision(t, p, "api.git.example", 80, Allow, ReasonListed, ".git.example")
	floor := p.Explain(mustName(t, "metadata.google.internal"), 443)
	if len(floor) != 1 || floor[0].Reason != ReasonFloorName || !floor[0].Decides || floor[0].Rule == "" {
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
	digest := func(text string) string { return mustPolicy(t, text, "p").Digest() }
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
	child, _ := mustParse(t, same["extends"]).Policy("q")
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
	all := mustParse(t, base).Digest()
	if all != mustParse(t, same["comments"]).Digest() {
		t.Error("a comment changes the digest of the file")
	}
	if all == mustParse(t, same["extends"]).Digest() || all == mustParse(t, strings.Replace(base, "  p:", "  q:", 1)).Digest() {
		t.Error("another policy, or another name, leaves the digest of the file")
	}
}

func TestDecideCost(t *testing.T) {
	p := mustPolicy(t, family, "shut")
	for _, s := range []string{"git.example", "a.b.c.d.git.example", "unlisted.net", "x.paste.example", "metadata.google.internal"} {
		n := mustName(t, s)
		if got := testing.AllocsPerRun(100, func() { p.Decide(n, 443); p.DecideDNS(n) }); got != 0 {
			t.Errorf("Decide(%s) allocates %v times", s, got)
		}
	}
}

func BenchmarkDecide(b *testing.B) {
	ps, err := Load("../allowlist.yaml")
	if err != nil {
		b.Fatal(err)
	}
	strict, _ := ps.Policy("strict")
	for _, s := range []string{"api.github.com", "unlisted.example.net", "a.b.c.d.e.f.g.h.pypi.org"} {
		n := mustName(b, s)
		b.Run(s, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				strict.Decide(n, 443)
			}
		})
	}
}
