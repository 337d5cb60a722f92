package firewall_test

import (
	"fmt"
	"strings"
	"testing"

	"sallyport/firewall/allowlist"
)

func TestAllowed(t *testing.T) {
	ps, err := allowlist.Parse(strings.NewReader(`version: 1
groups:
  web: [.b.example, {host: a.example, ports: [443, 80]}, b.example]
policies:
  base: {allow: [web]}
  less: {extends: base, remove: [a.example]}
  open: {allow: any}
`), "allowlist.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"base": "[{a.example [80 443]} {.b.example [443]} {b.example [443]}]",
		"less": "[{.b.example [443]} {b.example [443]}]",
		"open": "[]",
		"none": "[]",
	} {
		p, _ := ps.Policy(name)
		if got := fmt.Sprint(p.Allowed()); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
}
