package firewall_test

import (
	"net/netip"
	"strings"
	"testing"

	"sallyport/firewall"
	"sallyport/firewall/firewalltest"
)

// TestRefuse adds networks to those that no host may lead to. Public addresses, private
// ones that an entry admits and those of "allow: any" count alike.
//
// probe: R1, R2
// oracle: the judgement without them, which admits each of the addresses
func TestRefuse(t *testing.T) {
	ps := firewalltest.Policies(t, `version: 1
policies:
  strict: {allow: [{host: git.corp.example, private: [10.0.0.0/8]}]}
  open: {allow: any}
`)
	stricter := ps.Refuse([]netip.Prefix{netip.MustParsePrefix("2001:470:64::/96"), netip.MustParsePrefix("10.20.0.0/16")})
	if stricter.Digest() != ps.Digest() || ps.Refuse(nil) != ps {
		t.Error("a setting changes the digest, or none makes a copy")
	}
	for _, test := range []struct {
		policy, host, addr string
		refused            bool
	}{
		{"strict", "git.corp.example", "2001:470:64::a00:1", true},
		{"strict", "git.corp.example", "10.20.0.5", true},
		{"strict", "git.corp.example", "10.21.0.5", false},
		{"open", "any.example", "2001:470:64::808:808", true},
		{"open", "any.example", "2001:470:65::1", false},
	} {
		name, err := firewall.ParseName(test.host)
		if err != nil {
			t.Fatal(err)
		}
		addr := netip.MustParseAddr(test.addr)
		before, _ := ps.Policy(test.policy)
		after, _ := stricter.Policy(test.policy)
		if ok, detail := before.Decide(name, 443).JudgeAddr(addr); !ok {
			t.Errorf("control: %s: %s", test.addr, detail)
		}
		for _, d := range []firewall.Decision{after.Decide(name, 443), after.DecideDNS(name)} {
			ok, detail := firewall.JudgeAnswer(d, []netip.Addr{addr})
			if ok == test.refused || test.refused && !strings.Contains(detail, "refused by the gate's settings") {
				t.Errorf("%s of %s: %v, %q", test.addr, test.host, ok, detail)
			}
		}
	}
	if ok, _ := stricter.JudgeAddr(netip.MustParseAddr("2001:470:64::1")); ok {
		t.Error("the policies as a whole do not know it")
	}
	if ok, _ := (*firewall.Policies)(nil).JudgeAddr(netip.MustParseAddr("2001:470:64::1")); !ok {
		t.Error("control: without policies")
	}
}
