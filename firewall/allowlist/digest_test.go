package allowlist_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"sallyport/firewall/allowlist"
	"sallyport/firewall/firewalltest"
)

// TestDigests holds the digests of some files to those in testdata: they are in
// receipts that users keep, and must not change while what a file comes to does not.
func TestDigests(t *testing.T) {
	const golden = "testdata/digests.txt"
	texts := []struct{ name, text string }{
		{"anything", firewalltest.Anything}, {"family", firewalltest.Family}, {"budgeted", firewalltest.Budgeted},
		{"routes", "version: 1\npolicies:\n  p:\n    via: corp\n    allow: [any, {host: .a.example, ports: [80, 443], private: [10.0.0.0/8]}, {host: b.example, via: none}]\n"},
	}
	for _, path := range []string{"../../allowlist.yaml", "../../compose/demo-allowlist.yaml"} {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		texts = append(texts, struct{ name, text string }{strings.TrimPrefix(path, "../../"), string(data)})
	}
	var got strings.Builder
	for _, text := range texts {
		file, err := allowlist.Parse(strings.NewReader(text.text), text.name)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&got, "%s %s\n", text.name, file.Digest())
		for _, name := range file.Names() {
			p, _ := file.Policy(name)
			fmt.Fprintf(&got, "\t%s %s\n", name, p.Digest())
		}
	}
	if *update {
		if err := os.WriteFile(golden, []byte(got.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if got.String() != string(want) {
		t.Errorf("got\n%swant\n%s", got.String(), want)
	}
}
