package page

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"sallyport/firewall"
	"sallyport/firewall/allowlist"
	"sallyport/firewall/review"
)

// TestAdviceChangesNothingElse does to the file what the page says, and wants that it
// opens the host's port by the way of its entry, and nothing else.
func TestAdviceChangesNothingElse(t *testing.T) {
	const file = `version: 1
groups:
  g: [shared.example]
policies:
  base:
    allow:
      - plain.example
      - git.corp.example
      - .gone.example
  strict:
    extends: base
    allow:
      - g
      - {host: .corp.example, via: company, private: [10.0.0.0/8]}
      - {host: proxied.example, via: company}
  late:
    extends: early
  early:
    extends: base
    remove: [a.gone.example]
`
	before := mustParse(t, file)
	for _, test := range []struct{ policy, host, ask, with, opens string }{
		{"strict", "plain.example", "# in place of the entry plain.example on line 7\n- {host: plain.example, ports: [80, 443]}\n", "- {host: plain.example, ports: [80, 443]}", "plain.example on port 80"},
		{"strict", "api.corp.example", "# add port 80 to the entry .corp.example on line 14, and leave the rest of it as it is\n",
			"- {host: .corp.example, via: company, private: [10.0.0.0/8], ports: [80, 443]}", ".corp.example on port 80"},
		{"strict", "proxied.example", "# add port 80 to the entry proxied.example on line 15, and leave the rest of it as it is\n",
			"- {host: proxied.example, via: company, ports: [80, 443]}", "proxied.example on port 80"},
		{"strict", "shared.example", "# add port 80 to the entry shared.example on line 3, and leave the rest of it as it is\n",
			"g: [{host: shared.example, ports: [80, 443]}]", "shared.example on port 80"},
		{"late", "a.gone.example", "# take a.gone.example out of the remove on line 20, which the policy late has or inherits\n", "ech: refuse", "a.gone.example on port"},
	} {
		policy, _ := before.Policy(test.policy)
		name, _ := firewall.ParseName(test.host)
		port := uint16(80)
		if test.policy == "late" {
			port = 443
		}
		d := policy.Decide(name, port)
		v := &Verdict{Host: test.host, Port: port, Verdict: d.Verdict, Reason: d.Reason, Rule: d.Rule, Group: d.Group, Line: d.Line}
		v.explain(test.policy, policy, name)
		if v.Ask != test.ask {
			t.Errorf("%s: %q, want %q", test.host, v.Ask, test.ask)
			continue
		}
		var line int
		if _, err := fmt.Sscan(regexp.MustCompile(`line (\d+)`).FindStringSubmatch(v.Ask)[1], &line); err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(file, "\n")
		old := lines[line-1]
		lines[line-1] = old[:len(old)-len(strings.TrimLeft(old, " "))] + test.with
		after := mustParse(t, strings.Join(lines, "\n"))
		is, _ := after.Policy(test.policy)
		if now := is.Decide(name, port); !now.Allowed() || test.policy == "strict" && now.Via != policy.Decide(name, 443).Via {
			t.Errorf("%s: %+v", test.host, now)
		}
		for _, c := range review.Diff(before.Policies, after.Policies) {
			if len(c.Closes) > 0 || len(c.Opens) != 1 || !strings.Contains(c.Opens[0].String(), test.opens) {
				t.Errorf("%s: %+v", test.host, c)
			}
		}
	}
}

func mustParse(t *testing.T, text string) *allowlist.File {
	t.Helper()
	ps, err := allowlist.Parse(strings.NewReader(text), "f")
	if err != nil {
		t.Fatal(err)
	}
	return ps
}
