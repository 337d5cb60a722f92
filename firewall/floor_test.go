package firewall

import (
	"strings"
	"testing"
)

// everything allows what can be allowed: the floor and the resolvers hold even so.
const everything = "version: 1\npolicies:\n  p: {allow: any}\n"

// TestFloorNames tries the names that lead to hosts, metadata services and local
// networks.
//
// probe: D18
// oracle: the decision on each name under a policy that allows any, beside ordinary
// names
func TestFloorNames(t *testing.T) {
	p := mustPolicy(t, everything, "p")
	rows := strings.Fields(`metadata metadata.google.internal metadata.goog instance-data metadata.tencentyun.com
		api.metadata.cloud.ibm.com metadata.azure.com metadata.platformequinix.com metadata.packet.net
		metadata.digitalocean.com metadata.oraclecloud.com rancher-metadata kubernetes.default kubernetes.default.svc
		host.docker.internal gateway.docker.internal host.containers.internal kubernetes.docker.internal
		internal local localhost localdomain lan home.arpa svc cluster.local arpa test invalid onion`)
	for _, row := range rows {
		for _, s := range []string{row, strings.ToUpper(row) + ".", "a." + row, "a.b.c." + row + "."} {
			n, err := ParseName(s)
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
				wantDecision(t, p, s, port, Deny, ReasonFloorName, "")
			}
		}
	}
	for _, row := range rows { // the names beside a row are ordinary ones
		for _, s := range []string{"not" + row + ".example", row + ".example", "x" + row} {
			n, err := ParseName(s)
			if err != nil {
				continue
			}
			if _, on := floorIndex["x"+row]; on || strings.Contains(row, ".") && strings.HasPrefix(s, "x") {
				continue
			}
			if rule, bad := n.OnFloor(); bad {
				t.Errorf("%q.OnFloor() = %q, %v; want none", n, rule, bad)
			}
		}
	}
	for _, s := range []string{"xmetadata.goog", "metadata.googl", "azure.com", "xmetadata.azure.com", "digitalocean.com", "locals.example", "a.internals.com"} {
		wantDecision(t, p, s, 443, Allow, ReasonOpen, "any")
	}
}

func TestFloorRowsAreCanonical(t *testing.T) {
	for _, r := range floorNames {
		if r.host != strings.ToLower(r.host) || strings.Trim(r.host, ".") != r.host || r.what == "" {
			t.Errorf("row %+v is not canonical", r)
		}
		if strings.Contains(r.host, ".") {
			if n, err := ParseName(r.host); err != nil || n.String() != r.host {
				t.Errorf("ParseName(%q) = %q, %v", r.host, n, err)
			}
		}
	}
}

// TestResolvers tries the public DNS-over-HTTPS servers.
//
// probe: P6
// oracle: the decision on each resolver under a policy that allows any, and under one
// that lists it
func TestResolvers(t *testing.T) {
	anything := mustPolicy(t, everything, "p")
	for _, r := range resolvers {
		h := r.host
		n, err := ParseName(h)
		if err != nil || n.String() != h {
			t.Errorf("ParseName(%q) = %q, %v", h, n, err)
		}
		for _, wider := range resolvers {
			if strings.HasSuffix(h, "."+wider.host) {
				t.Errorf("%s lies under %s: an entry for the wider would not allow it", h, wider.host)
			}
		}
		wantDecision(t, anything, h, 443, Deny, ReasonDoH, "")
		wantDecision(t, anything, "a.b."+h, 443, Deny, ReasonDoH, "")
		if d := anything.DecideDNS(n); d.Allowed() || d.Reason != ReasonDoH {
			t.Errorf("DecideDNS(%s) = %+v", h, d)
		}
		p := mustPolicy(t, "version: 1\npolicies:\n  p: {allow: [any, ."+h+"]}\n", "p")
		wantDecision(t, p, h, 443, Allow, ReasonListed, "."+h)
		wantDecision(t, p, "a."+h, 443, Allow, ReasonListed, "."+h)
	}
	for _, s := range strings.Fields(`dns.google cloudflare-dns.com one.one.one.one dns.quad9.net doh.opendns.com
		mozilla.cloudflare-dns.com dns.nextdns.io dns.adguard-dns.com doh.cleanbrowsing.org`) {
		wantDecision(t, anything, s, 443, Deny, ReasonDoH, "")
	}
	wantDecision(t, anything, "www.google.com", 443, Allow, ReasonOpen, "any")

	// A wider entry is not one that names the resolver.
	p := mustPolicy(t, "version: 1\npolicies:\n  p: {allow: [.opendns.com, .nextdns.io, abc.dns.nextdns.io]}\n", "p")
	wantDecision(t, p, "doh.opendns.com", 443, Deny, ReasonDoH, "")
	wantDecision(t, p, "www.opendns.com", 443, Allow, ReasonListed, ".opendns.com")
	wantDecision(t, p, "abc.dns.nextdns.io", 443, Allow, ReasonListed, "abc.dns.nextdns.io")
	wantDecision(t, p, "abd.dns.nextdns.io", 443, Deny, ReasonDoH, "")
}
