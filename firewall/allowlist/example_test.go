package allowlist_test

import (
	"fmt"
	"strings"

	"sallyport/firewall/allowlist"
)

func ExampleParse_faults() {
	_, err := allowlist.Parse(strings.NewReader("version: 1\npolicies:\n  strict: {alow: ['*.github.com']}\n  open: {allow: [any, gihub]}\n"), "allowlist.yaml")
	fmt.Println(err)
	// Output:
	// allowlist.yaml:3:12: policies.strict: unknown key "alow", did you mean "allow"?; the keys here are allow, extends, remove, ech, via, budgets
	// allowlist.yaml:4:23: policies.open.allow[1]: no group is called "gihub"; a host has a dot in it
}
