package firewall_test

import (
	"strings"
	"testing"

	"sallyport/firewall"
	"sallyport/firewall/allowlist"
	"sallyport/firewall/firewalltest"
)

// TestDefaultAllowlist requires that the shipped file allows the hosts of the three
// groups with their subdomains, the two mirrors over plain HTTP too, and nothing else.
//
// probe: P9
// oracle: the decision on each host of the shipped file and beside it
func TestDefaultAllowlist(t *testing.T) {
	ps, err := allowlist.Load("../allowlist.yaml")
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
				firewalltest.WantDecision(t, strict, s, 443, firewall.Allow, firewall.ReasonListed, "."+h)
				if d := strict.Decide(firewalltest.Name(t, s), 443); d.Group != group || d.Line == 0 {
					t.Errorf("%s: group %q, line %d", s, d.Group, d.Line)
				}
				if strings.Contains(mirrors, h) {
					firewalltest.WantDecision(t, strict, s, 80, firewall.Allow, firewall.ReasonListed, "."+h)
				} else {
					firewalltest.WantDecision(t, strict, s, 80, firewall.Deny, firewall.ReasonPortNotAllowed, "."+h)
				}
				firewalltest.WantDecision(t, strict, s, 22, firewall.Deny, firewall.ReasonPortNotAllowed, "."+h)
				firewalltest.WantDecision(t, open, s, 443, firewall.Allow, firewall.ReasonOpen, "any")
				if d := strict.DecideDNS(firewalltest.Name(t, s)); !d.Allowed() {
					t.Errorf("DecideDNS(%s) = %+v", s, d)
				}
			}
			for _, s := range []string{"evil" + h, h + ".evil.com", "x-" + h, "a." + h + ".b.net"} {
				firewalltest.WantDecision(t, strict, s, 443, firewall.Deny, firewall.ReasonNotListed, "")
				if d := strict.DecideDNS(firewalltest.Name(t, s)); d.Allowed() {
					t.Errorf("DecideDNS(%s) = %+v", s, d)
				}
			}
		}
	}
	named := make(map[firewall.Name]bool)
	rules := strict.Rules()
	for s := range rules.Allow {
		named[s.Name] = true
	}
	if len(named)+len(rules.Remove) != listed {
		t.Errorf("strict names %d hosts and removes %d, want %d", len(named), len(rules.Remove), listed)
	}
	// User-content suffixes and public resolvers are in neither.
	for _, s := range []string{"a.github.io", "a.pages.dev", "b.s3.amazonaws.com", "a.blob.core.windows.net", "storage.googleapis.com", "example.com", "nip.io"} {
		firewalltest.WantDecision(t, strict, s, 443, firewall.Deny, firewall.ReasonNotListed, "")
		firewalltest.WantDecision(t, open, s, 443, firewall.Allow, firewall.ReasonOpen, "any")
		firewalltest.WantDecision(t, open, s, 80, firewall.Allow, firewall.ReasonOpen, "any")
		firewalltest.WantDecision(t, open, s, 22, firewall.Deny, firewall.ReasonPortNotAllowed, "any")
	}
}
