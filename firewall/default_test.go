package firewall

import (
	"strings"
	"testing"
)

// TestDefaultAllowlist wants that the shipped file allows the hosts of the three
// groups with their subdomains, the two mirrors over plain HTTP too, and nothing else.
//
// probe: P9
// oracle: the decision on each host of the shipped file and beside it
func TestDefaultAllowlist(t *testing.T) {
	ps, err := Load("../allowlist.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if ws := ps.Warnings(); len(ws) > 0 {
		t.Errorf("warnings: %v", ws)
	}
	if got := strings.Join(ps.Names(), " "); got != "open strict" {
		t.Errorf("policies %q, want open and strict", got)
	}
	strict, _ := ps.Policy("strict")
	open, _ := ps.Policy("open")
	if strict.PassECH() || strict.Any() || !open.PassECH() || !open.Any() {
		t.Error("strict must refuse ECH and name its hosts, open must pass ECH and allow any")
	}
	hosts := map[string]string{
		"github":     "github.com githubusercontent.com",
		"providers":  "anthropic.com openai.com openrouter.ai",
		"registries": "npmjs.org yarnpkg.com pypi.org pythonhosted.org crates.io golang.org rubygems.org alpinelinux.org debian.org",
	}
	mirrors := "alpinelinux.org debian.org"
	listed := 0
	for group, list := range hosts {
		for _, h := range strings.Fields(list) {
			listed++
			for _, s := range []string{h, "www." + h, "a.b.c." + h, strings.ToUpper(h) + "."} {
				wantDecision(t, strict, s, 443, Allow, ReasonListed, "."+h)
				if d := strict.Decide(mustName(t, s), 443); d.Group != group || d.Line == 0 {
					t.Errorf("%s: group %q, line %d", s, d.Group, d.Line)
				}
				if strings.Contains(mirrors, h) {
					wantDecision(t, strict, s, 80, Allow, ReasonListed, "."+h)
				} else {
					wantDecision(t, strict, s, 80, Deny, ReasonPortNotAllowed, "."+h)
				}
				wantDecision(t, strict, s, 22, Deny, ReasonPortNotAllowed, "."+h)
				wantDecision(t, open, s, 443, Allow, ReasonOpen, "any")
				if d := strict.DecideDNS(mustName(t, s)); !d.Allowed() {
					t.Errorf("DecideDNS(%s) = %+v", s, d)
				}
			}
			for _, s := range []string{"evil" + h, h + ".evil.com", "x-" + h, "a." + h + ".b.net"} {
				wantDecision(t, strict, s, 443, Deny, ReasonNotListed, "")
				if d := strict.DecideDNS(mustName(t, s)); d.Allowed() {
					t.Errorf("DecideDNS(%s) = %+v", s, d)
				}
			}
		}
	}
	if got := len(strict.nodes) - len(resolvers); got != listed {
		t.Errorf("strict names %d hosts, want %d", got, listed)
	}
	// User-content suffixes and public resolvers are in neither.
	for _, s := range []string{"a.github.io", "a.pages.dev", "b.s3.amazonaws.com", "a.blob.core.windows.net", "storage.googleapis.com", "example.com", "nip.io"} {
		wantDecision(t, strict, s, 443, Deny, ReasonNotListed, "")
		wantDecision(t, open, s, 443, Allow, ReasonOpen, "any")
		wantDecision(t, open, s, 80, Allow, ReasonOpen, "any")
		wantDecision(t, open, s, 22, Deny, ReasonPortNotAllowed, "any")
	}
}
