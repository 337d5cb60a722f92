package allowlist_test

import (
	"fmt"
	"strings"
	"testing"

	"sallyport/firewall"
	"sallyport/firewall/allowlist"
)

func TestVia(t *testing.T) {
	parse := func(entry string) *firewall.Policies {
		t.Helper()
		ps, err := allowlist.Parse(strings.NewReader("version: 1\npolicies:\n  p: {allow: [direct.example, "+entry+"]}\n"), "test")
		if err != nil {
			t.Fatal(err)
		}
		return ps.Policies
	}
	digest := func(ps *firewall.Policies) string {
		p, _ := ps.Policy("p")
		return p.Digest()
	}
	ps := parse("{host: .far.example, via: corp}")
	p, _ := ps.Policy("p")
	for host, want := range map[string]string{"far.example": "corp", "www.far.example": "corp", "direct.example": ""} {
		n, err := firewall.ParseName(host)
		if err != nil {
			t.Fatal(err)
		}
		if d := p.Decide(n, 443); !d.Allowed() || d.Via != want {
			t.Errorf("%s: %+v, want via %q", host, d, want)
		}
	}
	if got := fmt.Sprint(ps.Vias()); got != "[corp]" {
		t.Errorf("proxies %s", got)
	}
	plain := parse("{host: .far.example}")
	if len(plain.Vias()) != 0 || digest(plain) == digest(ps) || digest(ps) == digest(parse("{host: .far.example, via: lab}")) {
		t.Error("the way is not in the digest")
	}
}

// TestPolicyVia has policies that lead all they allow by way of a proxy, with
// exceptions, and others that extend them.
func TestPolicyVia(t *testing.T) {
	const file = `version: 1
groups:
  site: [.site.example, {host: lab.site.example, via: lab}, {host: here.site.example, via: none}]
policies:
  plain:  {allow: [site]}
  corp:   {via: corp, allow: [site, {host: inside.example, private: [10.0.0.0/8], via: none}]}
  child:  {extends: corp, allow: [own.example]}
  other:  {extends: corp, via: other}
  direct: {extends: corp, via: none}
  open:   {via: corp, allow: [any, {host: inside.example, via: none}]}
  wide:   {allow: any}
`
	ps, err := allowlist.Parse(strings.NewReader(file), "test")
	if err != nil {
		t.Fatal(err)
	}
	const absent = "refused"
	hosts := []string{"site.example", "lab.site.example", "here.site.example", "inside.example", "own.example", "else.example"}
	for name, ways := range map[string][]string{
		"plain":  {"", "lab", "", absent, absent, absent},
		"corp":   {"corp", "lab", "", "", absent, absent},
		"child":  {"corp", "lab", "", "", "corp", absent},
		"other":  {"other", "lab", "", "", absent, absent},
		"direct": {"", "lab", "", "", absent, absent},
		"open":   {"corp", "corp", "corp", "", "corp", "corp"},
		"wide":   {"", "", "", "", "", ""},
	} {
		p, _ := ps.Policy(name)
		for i, host := range hosts {
			n, err := firewall.ParseName(host)
			if err != nil {
				t.Fatal(err)
			}
			way := absent
			if d := p.Decide(n, 443); d.Allowed() {
				way = d.Via
			}
			if way != ways[i] {
				t.Errorf("%s reaches %s by way of %q, want %q", name, host, way, ways[i])
			}
		}
	}
	if got := fmt.Sprint(ps.Vias()); got != "[corp lab other]" {
		t.Errorf("proxies %s", got)
	}
	digests := map[string]string{}
	for _, name := range ps.Names() {
		p, _ := ps.Policy(name)
		if same := digests[p.Digest()]; same != "" {
			t.Errorf("%s and %s have one digest", same, name)
		}
		digests[p.Digest()] = name
	}
}

func TestViaFaults(t *testing.T) {
	for text, want := range map[string]string{
		"policies: {p: {allow: [{host: a.example, via: 'http://u:p@10.0.0.9'}]}}":                     "is not the name of a proxy",
		"policies: {p: {allow: [{host: a.example, via: ''}]}}":                                        "is not the name of a proxy",
		"policies: {p: {allow: [{host: a.example, via: [corp]}]}}":                                    "policies.p.allow[0].via",
		"groups: {a: [a.example], b: [{host: a.example, via: corp}]}\npolicies: {p: {allow: [a, b]}}": "is reached by another way",
		"policies: {p: {via: 'corp proxy', allow: [a.example]}}":                                      "policies.p.via",
	} {
		if _, err := allowlist.Parse(strings.NewReader("version: 1\n"+text+"\n"), "test"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}
