package firewall_test

import (
	"strings"
	"testing"

	"sallyport/firewall"
	"sallyport/firewall/allowlist"
)

// A closed policy denies what it allows otherwise, and is the same in all else.
func TestClosed(t *testing.T) {
	ps, err := allowlist.Parse(strings.NewReader("version: 1\npolicies:\n  strict: {allow: [a.example]}\n  open: {allow: any}\n"), "test")
	if err != nil {
		t.Fatal(err)
	}
	name, err := firewall.ParseName("a.example")
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range []string{"strict", "open"} {
		p, _ := ps.Policy(n)
		closed := p.Closed(firewall.ReasonLog, "no log")
		for what, d := range map[string]firewall.Decision{"port": closed.Decide(name, 443), "name": closed.DecideDNS(name)} {
			if d.Verdict != firewall.Deny || d.Reason != firewall.ReasonLog || d.Detail != "no log" {
				t.Errorf("%s, %s: %+v", n, what, d)
			}
		}
		if closed.Name() != p.Name() || closed.Digest() != p.Digest() || closed.Budget() != p.Budget() {
			t.Errorf("%s: another policy", n)
		}
		if !p.Decide(name, 443).Allowed() {
			t.Errorf("control: %s denies", n)
		}
		if again := closed.Closed(firewall.ReasonLog, "again"); p.Behind() != p || closed.Behind() != p || again.Behind() != p {
			t.Errorf("%s: another policy behind it", n)
		}
	}
	if d := (*firewall.Policy)(nil).Closed(firewall.ReasonLog, "").Decide(name, 443); d.Allowed() {
		t.Errorf("no policy: %+v", d)
	}
	if p := (*firewall.Policy)(nil).Closed(firewall.ReasonLog, "").Behind(); p != nil {
		t.Errorf("no policy is behind it, got %q", p.Name())
	}
}
