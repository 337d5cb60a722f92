package review

import (
	"os"
	"strings"
	"testing"

	"sallyport/firewall"
	"sallyport/firewall/firewalltest"
	"sallyport/firewall/hosts"
)

// TestUploads: docs/github.md has each registry with its source, and its policy for runs
// that write reaches none of all the places.
func TestUploads(t *testing.T) {
	doc, err := os.ReadFile("../../docs/github.md")
	if err != nil {
		t.Fatal(err)
	}
	for r := range hosts.Registries.All() {
		if !strings.Contains(string(doc), "\n| `"+r.Host+"` | ") || !strings.Contains(string(doc), " | <"+r.Source+"> |") {
			t.Errorf("docs/github.md has no row for %s with its source", r.Host)
		}
	}
	_, example, _ := strings.Cut(string(doc), "```yaml allowlist\n")
	example, _, _ = strings.Cut(example, "```")
	for u := range Uploads(firewalltest.Policy(t, example, "write")) {
		t.Errorf("docs/github.md: the policy for runs that write reaches %s", u.Host)
	}
	seen := 0
	for u := range Uploads(firewalltest.Policy(t, firewalltest.Anything, "p")) {
		if seen++; u.Decision.Reason != firewall.ReasonOpen || u.What == "" {
			t.Errorf("control: %+v", u)
		}
	}
	if seen < 50 {
		t.Errorf("only %d hosts", seen)
	}
}

// TestReached: a known host itself, one below it, and neither.
func TestReached(t *testing.T) {
	p := firewalltest.Policy(t, `
version: 1
groups: {packages: [.pypi.org, .crates.io]}
policies:
  p: {allow: [packages, my.webhook.site, .workers.dev, own.pages.dev, {host: pastebin.com, ports: [80]}], remove: [crates.io]}
`, "p")
	for _, test := range []struct {
		host   string
		suffix bool
		want   string
	}{
		{"upload.pypi.org", false, "upload.pypi.org"},
		{"webhook.site", false, "my.webhook.site"},
		{"hook.site", false, ""},    // the end of a label makes no subdomain
		{"pastebin.com", false, ""}, // not for TLS
		{"crates.io", false, ""},
		{"rubygems.org", false, ""},
		{"workers.dev", true, ".workers.dev"},
		{"pages.dev", true, ""}, // the operator's own only
	} {
		reached := reachedOf
		if test.suffix {
			reached = reachedUnder
		}
		got, d := reached(p, test.host)
		if !d.Allowed() {
			got = ""
		}
		if got != test.want {
			t.Errorf("%s is reached as %q, %v; want %q", test.host, got, d, test.want)
		}
	}
}
