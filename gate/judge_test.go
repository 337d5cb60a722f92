package gate

import (
	"net/netip"
	"slices"
	"testing"

	"sallyport/firewall"
	"sallyport/gate/control"
)

// TestJudge: a question is answered by the policy in force as a sandbox's connection
// would be, and leaves no record.
//
// probe: T2
// oracle: the decision that the firewall makes of the same host, and of another address
// of it that may be dialled
func TestJudge(t *testing.T) {
	g := start(t, upstream(t), nil)
	inside, outside := netip.MustParseAddr("10.1.2.3"), netip.MustParseAddr("140.82.121.3")
	loopback, metadata := netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("169.254.169.254")
	for _, test := range []struct {
		policy, host string
		port         uint16
		addrs        []netip.Addr
		reason       firewall.Reason
		refused      []bool
	}{
		{"strict", "a.site.example", 443, nil, firewall.ReasonListed, nil},
		{"strict", "a.site.example", 443, []netip.Addr{inside, outside}, firewall.ReasonListed, []bool{false, false}},
		{"strict", "A.site.example.", 443, []netip.Addr{outside, loopback}, firewall.ReasonAddress, []bool{false, true}},
		{"strict", "a.site.example", 443, []netip.Addr{metadata}, firewall.ReasonAddress, []bool{true}},
		{"strict", "a.site.example", 22, []netip.Addr{outside}, firewall.ReasonPortNotAllowed, []bool{true}},
		{"strict", "other.example", 443, []netip.Addr{outside}, firewall.ReasonNotListed, []bool{true}},
		{"open", "other.example", 443, []netip.Addr{outside}, firewall.ReasonOpen, []bool{false}},
		{"open", "other.example", 443, []netip.Addr{inside}, firewall.ReasonAddress, []bool{true}},
		{"open", "metadata.google.internal", 80, nil, firewall.ReasonFloorName, nil},
		{"open", "10.1.2.3", 80, []netip.Addr{inside}, firewall.ReasonBadName, []bool{true}},
	} {
		j, err := g.Judge(t.Context(), control.Question{Policy: test.policy, Host: test.host, Port: test.port, Addresses: test.addrs})
		var refused []bool
		for _, r := range j.Refusals {
			refused = append(refused, r != "")
		}
		p, _ := g.daemon.Allowlist.Policy(test.policy)
		allowed := test.reason == firewall.ReasonListed || test.reason == firewall.ReasonOpen
		if err != nil || j.Reason != test.reason || (j.Verdict == firewall.Allow) != allowed || !slices.Equal(refused, test.refused) || j.Digest != p.Digest() {
			t.Errorf("%+v: %+v, %v", test, j, err)
		}
	}
	h, err := g.Health(t.Context())
	p, _ := g.daemon.Allowlist.Policy("open")
	if err != nil || h.Digests["open"] != p.Digest() || len(h.Digests) != 3 || slices.Contains(h.Bounded, "open") || len(h.Bounded) != 2 {
		t.Errorf("digests %v, bounded %v, %v", h.Digests, h.Bounded, err)
	}
}
