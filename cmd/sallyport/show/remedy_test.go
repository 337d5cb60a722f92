package show

import (
	"strings"
	"testing"

	"sallyport/firewall"
	"sallyport/firewall/account"
	"sallyport/firewall/allowlist"
)

// TestRemedy parses what a result says to paste, which leaves out hosts that have an
// entry: a second one would lack its proxy and its ranges.
func TestRemedy(t *testing.T) {
	r := account.Receipt{Policy: "strict", Hosts: []account.ReceiptHost{
		{Host: "new.example", Port: 443, Verdict: firewall.Deny, Reason: firewall.ReasonNotListed},
		{Host: "git.corp.example", Port: 80, Verdict: firewall.Deny, Reason: firewall.ReasonPortNotAllowed},
	}}
	var b strings.Builder
	if err := printRemedy(&b, r); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(b.String(), "To allow git.corp.example on port 80, add the port to the entry that has it: sallyport explain git.corp.example:80 -p strict\n") {
		t.Error(b.String())
	}
	_, paste, _ := strings.Cut(b.String(), "policies:\n")
	ps, err := allowlist.Parse(strings.NewReader("version: 1\npolicies:\n"+paste), "f")
	if err != nil {
		t.Fatalf("%v in\n%s", err, paste)
	}
	policy, _ := ps.Policy("strict")
	for name, want := range map[string]bool{"new.example": true, "git.corp.example": false} {
		n, err := firewall.ParseName(name)
		if err != nil {
			t.Fatal(err)
		}
		if got := policy.Decide(n, 443).Allowed(); got != want {
			t.Errorf("%s: %t", name, got)
		}
	}
}
