package allowlist_test

import (
	"fmt"
	"testing"

	"sallyport/firewall"
	"sallyport/firewall/budget"
	"sallyport/firewall/firewalltest"
)

func TestBudgets(t *testing.T) {
	ps := firewalltest.Policies(t, firewalltest.Budgeted)
	want := budget.Budget{
		Upload: 1e6, Download: 1536 << 20, HostUpload: 512, HostDownload: 10_000, WildcardNames: 3, WildcardBytes: 1024,
		Connections: 2, ConnectionsPerSecond: 5, QueriesPerSecond: 50,
	}
	more := want
	more.Upload, more.HostUpload = 2e6, 0
	for name, want := range map[string]budget.Budget{"strict": want, "same": want, "more": more, "none": {}, "open": {}} {
		p, _ := ps.Policy(name)
		if got := p.Budget(); got != want {
			t.Errorf("%s: %+v, want %+v", name, got, want)
		}
	}
	if b := (*firewall.Policy)(nil).Budget(); b != (budget.Budget{}) {
		t.Errorf("nil policy: %+v", b)
	}
}

// Every budget is a part of the digest, none is as if the key was absent.
func TestBudgetDigest(t *testing.T) {
	digest := func(budgets string) string {
		return firewalltest.Policy(t, "version: 1\npolicies: {p: {allow: any"+budgets+"}}", "p").Digest()
	}
	seen := map[string]string{digest(""): "no budgets"}
	for _, k := range budget.Kinds() {
		for _, n := range []int{1, 2} {
			value := fmt.Sprint(n)
			if k.IsSize() {
				value += "kB"
			}
			line := fmt.Sprintf(", budgets: {%s: %s}", k.String(), value)
			d := digest(line)
			if seen[d] != "" {
				t.Errorf("%s and %s have the same digest", line, seen[d])
			}
			seen[d] = line
		}
		if seen[digest(", budgets: {"+k.String()+": none}")] != "no budgets" {
			t.Errorf("%s: none changes the digest", k.String())
		}
	}
	if digest(", budgets: {upload: 1MB}") != digest(", budgets: {upload: 1000kB, download: none}") {
		t.Error("the spelling of a size changes the digest")
	}
}
