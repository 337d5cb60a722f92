package firewall

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

const budgeted = `
version: 1
policies:
  strict:
    allow: [.wild.example, one.example]
    budgets:
      upload: 1MB
      download: 1.5GiB
      hostUpload: 512B
      hostDownload: 10kB
      wildcardNames: 3
      wildcardBytes: 1KiB
      connections: 2
      connectionsPerSecond: 5
      queriesPerSecond: 50
  more: {extends: strict, budgets: {upload: 2MB, hostUpload: none}}
  same: {extends: strict}
  none: {allow: [.wild.example, one.example]}
  open: {allow: any}
`

func TestBudgets(t *testing.T) {
	ps := mustParse(t, budgeted)
	want := Budget{
		Upload: 1e6, Download: 1536 << 20, HostUpload: 512, HostDownload: 10_000, WildcardNames: 3, WildcardBytes: 1024,
		Connections: 2, ConnectionsPerSecond: 5, QueriesPerSecond: 50,
	}
	more := want
	more.Upload, more.HostUpload = 2e6, 0
	for name, want := range map[string]Budget{"strict": want, "same": want, "more": more, "none": {}, "open": {}} {
		p, _ := ps.Policy(name)
		if got := p.Budget(); got != want {
			t.Errorf("%s: %+v, want %+v", name, got, want)
		}
	}
	if b := (*Policy)(nil).Budget(); b != (Budget{}) {
		t.Errorf("nil policy: %+v", b)
	}
}

// Every budget is a part of the digest, none is as if the key was absent.
func TestBudgetDigest(t *testing.T) {
	digest := func(budgets string) string {
		return mustPolicy(t, "version: 1\npolicies: {p: {allow: any"+budgets+"}}", "p").Digest()
	}
	seen := map[string]string{digest(""): "no budgets"}
	for _, k := range budgetKeys {
		for _, n := range []int{1, 2} {
			value := fmt.Sprint(n)
			if k.size {
				value += "kB"
			}
			line := fmt.Sprintf(", budgets: {%s: %s}", k.word, value)
			d := digest(line)
			if seen[d] != "" {
				t.Errorf("%s and %s have the same digest", line, seen[d])
			}
			seen[d] = line
		}
		if seen[digest(", budgets: {"+k.word+": none}")] != "no budgets" {
			t.Errorf("%s: none changes the digest", k.word)
		}
	}
	if digest(", budgets: {upload: 1MB}") != digest(", budgets: {upload: 1000kB, download: none}") {
		t.Error("the spelling of a size changes the digest")
	}
}

// The documentation has a row for each budget.
func TestBudgetsAreDocumented(t *testing.T) {
	doc, err := os.ReadFile("../docs/allowlist.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range budgetKeys {
		if !strings.Contains(string(doc), "\n| `"+k.word+"` |") {
			t.Errorf("docs/allowlist.md has no row for %s", k.word)
		}
	}
}
