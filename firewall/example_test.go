package firewall_test

import (
	"fmt"
	"net/netip"
	"strings"

	"sallyport/firewall"
	"sallyport/firewall/allowlist"
)

const rules = `
version: 1
groups:
  code: [.github.com, {host: git.corp.example, private: [10.20.0.0/16]}]
policies:
  strict: {allow: [code]}
  quiet: {extends: strict, remove: [gist.github.com]}
`

func Example() {
	policies, err := allowlist.Parse(strings.NewReader(rules), "allowlist.yaml")
	if err != nil {
		fmt.Println(err)
		return
	}
	strict, _ := policies.Policy("strict")
	for _, s := range []string{"API.GitHub.com.", "evilgithub.com", "127.1"} {
		name, err := firewall.ParseName(s)
		if err != nil {
			fmt.Printf("%s: %v\n", s, err)
			continue
		}
		d := strict.Decide(name, 443)
		fmt.Printf("%s: %s, %s, rule %q\n", name, d.Verdict, d.Reason, d.Rule)
	}
	// Output:
	// api.github.com: allow, listed, rule ".github.com"
	// evilgithub.com: deny, not_listed, rule ""
	// 127.1: the name is an IP address, not a host name
}

func ExampleJudgeAnswer() {
	policies, _ := allowlist.Parse(strings.NewReader(rules), "allowlist.yaml")
	strict, _ := policies.Policy("strict")
	name, _ := firewall.ParseName("git.corp.example")
	d := strict.Decide(name, 443)
	for _, s := range []string{"10.20.1.1", "10.99.1.1", "169.254.169.254"} {
		ok, detail := firewall.JudgeAnswer(d, []netip.Addr{netip.MustParseAddr(s)})
		fmt.Printf("%v %q\n", ok, detail)
	}
	// Output:
	// true ""
	// false "10.99.1.1 is in 10.0.0.0/8: private use, RFC 1918"
	// false "169.254.169.254 is in 169.254.169.254/32: metadata of AWS, GCP, Azure, OCI, OpenStack, DigitalOcean, Linode and others"
}

func ExamplePolicy_Explain() {
	policies, _ := allowlist.Parse(strings.NewReader(rules), "allowlist.yaml")
	quiet, _ := policies.Policy("quiet")
	name, _ := firewall.ParseName("gist.github.com")
	for _, m := range quiet.Explain(name, 443) {
		fmt.Println(m.Verdict, m.Reason, m.Rule, "line", m.Line, "decides:", m.Decides)
	}
	// Output:
	// deny removed gist.github.com line 7 decides: true
	// allow listed .github.com line 4 decides: false
}
