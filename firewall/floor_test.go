package firewall_test

import (
	"strings"
	"testing"

	"sallyport/firewall"
	"sallyport/firewall/firewalltest"
	"sallyport/firewall/hosts"
)

// TestFloorNames tries the names that lead to hosts, metadata services and local
// networks.
//
// probe: D18
// oracle: the decision on each name under a policy that allows any, beside ordinary
// names
func TestFloorNames(t *testing.T) {
	p := firewalltest.Policy(t, firewalltest.Anything, "p")
	rows := strings.Fields(`metadata metadata.google.internal metadata.goog instance-data metadata.tencentyun.com
		api.metadata.cloud.ibm.com metadata.azure.com metadata.platformequinix.com metadata.packet.net
		metadata.digitalocean.com metadata.oraclecloud.com rancher-metadata kubernetes.default kubernetes.default.svc
		host.docker.internal gateway.docker.internal host.containers.internal kubernetes.docker.internal
		internal local localhost localdomain lan home.arpa svc cluster.local arpa test invalid onion`)
	for _, row := range rows {
		for _, s := range []string{row, strings.ToUpper(row) + ".", "a." + row, "a.b.c." + row + "."} {
			n, err := firewall.ParseName(s)
			if err != nil {
				if strings.Contains(strings.TrimSuffix(s, "."), ".") {
					t.Errorf("ParseName(%q): %v", s, err)
				}
				continue // a single label is no name at all
			}
			if rule, bad := n.OnFloor(); !bad || rule == "" {
				t.Errorf("%q.OnFloor() = %q, %v", n, rule, bad)
			}
			for _, port := range []uint16{80, 443} {
				firewalltest.WantDecision(t, p, s, port, firewall.Deny, firewall.ReasonFloorName, "")
			}
		}
	}
	for _, row := range rows { // the names beside a row are ordinary ones
		for _, s := range []string{"not" + row + ".example", row + ".example", "x" + row} {
			n, err := firewall.ParseName(s)
			if err != nil {
				continue
			}
			if r, _ := hosts.Floor.Find("x" + row); r.Host == "x"+row || strings.Contains(row, ".") && strings.HasPrefix(s, "x") {
				continue
			}
			if rule, bad := n.OnFloor(); bad {
				t.Errorf("%q.OnFloor() = %q, %v; want none", n, rule, bad)
			}
		}
	}
	for _, s := range []string{"xmetadata.goog", "metadata.googl", "azure.com", "xmetadata.azure.com", "digitalocean.com", "locals.example", "a.internals.com"} {
		firewalltest.WantDecision(t, p, s, 443, firewall.Allow, firewall.ReasonOpen, "any")
	}
}

// TestResolvers tries the public DNS-over-HTTPS servers.
//
// probe: P6
// oracle: the decision on each resolver under a policy that allows any, and under one
// that lists it
func TestResolvers(t *testing.T) {
	anything := firewalltest.Policy(t, firewalltest.Anything, "p")
	for r := range hosts.Resolvers.All() {
		h := r.Host
		n, err := firewall.ParseName(h)
		if err != nil || n.String() != h {
			t.Errorf("ParseName(%q) = %q, %v", h, n, err)
		}
		for wider := range hosts.Resolvers.All() {
			if strings.HasSuffix(h, "."+wider.Host) {
				t.Errorf("%s lies under %s: an entry for the wider would not allow it", h, wider.Host)
			}
		}
		firewalltest.WantDecision(t, anything, h, 443, firewall.Deny, firewall.ReasonDoH, "")
		firewalltest.WantDecision(t, anything, "a.b."+h, 443, firewall.Deny, firewall.ReasonDoH, "")
		if d := anything.DecideDNS(n); d.Allowed() || d.Reason != firewall.ReasonDoH {
			t.Errorf("DecideDNS(%s) = %+v", h, d)
		}
		p := firewalltest.Policy(t, "version: 1\npolicies:\n  p: {allow: [any, ."+h+"]}\n", "p")
		firewalltest.WantDecision(t, p, h, 443, firewall.Allow, firewall.ReasonListed, "."+h)
		firewalltest.WantDecision(t, p, "a."+h, 443, firewall.Allow, firewall.ReasonListed, "."+h)
	}
	for _, s := range strings.Fields(`dns.google cloudflare-dns.com one.one.one.one dns.quad9.net doh.opendns.com
		mozilla.cloudflare-dns.com dns.nextdns.io dns.adguard-dns.com doh.cleanbrowsing.org`) {
		firewalltest.WantDecision(t, anything, s, 443, firewall.Deny, firewall.ReasonDoH, "")
	}
	firewalltest.WantDecision(t, anything, "www.google.com", 443, firewall.Allow, firewall.ReasonOpen, "any")

	// A wider entry is not one that names the resolver.
	p := firewalltest.Policy(t, "version: 1\npolicies:\n  p: {allow: [.opendns.com, .nextdns.io, abc.dns.nextdns.io]}\n", "p")
	firewalltest.WantDecision(t, p, "doh.opendns.com", 443, firewall.Deny, firewall.ReasonDoH, "")
	firewalltest.WantDecision(t, p, "www.opendns.com", 443, firewall.Allow, firewall.ReasonListed, ".opendns.com")
	firewalltest.WantDecision(t, p, "abc.dns.nextdns.io", 443, firewall.Allow, firewall.ReasonListed, "abc.dns.nextdns.io")
	firewalltest.WantDecision(t, p, "abd.dns.nextdns.io", 443, firewall.Deny, firewall.ReasonDoH, "")
}
