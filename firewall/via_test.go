package firewall

import (
	"fmt"
	"strings"
	"testing"
)

func TestVia(t *testing.T) {
	parse := func(entry string) *Policies {
		t.Helper()
		ps, err := Parse(strings.NewReader("version: 1\npolicies:\n  p: {allow: [direct.example, "+entry+"]}\n"), "test")
		if err != nil {
			t.Fatal(err)
		}
		return ps
	}
	digest := func(ps *Policies) string {
		p, _ := ps.Policy("p")
		return p.Digest()
	}
	ps := parse("{host: .far.example, via: corp}")
	p, _ := ps.Policy("p")
	for host, want := range map[string]string{"far.example": "corp", "www.far.example": "corp", "direct.example": ""} {
		n, err := ParseName(host)
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

func TestViaFaults(t *testing.T) {
	for text, want := range map[string]string{
		"policies: {p: {allow: [{host: a.example, via: 'http://u:p@10.0.0.9'}]}}":                     "is not the name of a proxy",
		"policies: {p: {allow: [{host: a.example, via: ''}]}}":                                        "is not the name of a proxy",
		"policies: {p: {allow: [{host: a.example, via: [corp]}]}}":                                    "policies.p.allow[0].via",
		"groups: {a: [a.example], b: [{host: a.example, via: corp}]}\npolicies: {p: {allow: [a, b]}}": "is reached by another way",
	} {
		if _, err := Parse(strings.NewReader("version: 1\n"+text+"\n"), "test"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}
