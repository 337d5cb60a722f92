package firewall

import "strings"

// floorNames are the names that no policy allows, with all their subdomains: the
// metadata services of the clouds, and suffixes that mean something only inside
// some network. A row whose origin is given as "recalled" comes from memory:
// refusing it does no harm.
var floorNames = []struct{ name, what string }{
	// Metadata services, by the documentation of each cloud.
	{"metadata", "cloud metadata"},
	{"metadata.google.internal", "cloud metadata (GCP)"},
	{"metadata.goog", "cloud metadata (GCP)"},
	{"instance-data", "cloud metadata (AWS)"},
	{"metadata.tencentyun.com", "cloud metadata (Tencent)"},      // recalled
	{"api.metadata.cloud.ibm.com", "cloud metadata (IBM)"},       // recalled
	{"metadata.azure.com", "cloud metadata (Azure)"},             //
	{"metadata.platformequinix.com", "cloud metadata (Equinix)"}, // recalled
	{"metadata.packet.net", "cloud metadata (Packet)"},           // recalled
	{"metadata.digitalocean.com", "cloud metadata (DigitalOcean)"},
	{"metadata.oraclecloud.com", "cloud metadata (OCI)"},
	{"rancher-metadata", "platform metadata (Rancher)"}, // recalled

	// Names that container platforms give to the host or to themselves.
	{"kubernetes.default", "Kubernetes API"},
	{"host.docker.internal", "container host"},
	{"gateway.docker.internal", "container host"},
	{"host.containers.internal", "container host"},
	{"kubernetes.docker.internal", "container host"},

	// Suffixes that public DNS does not serve.
	{"internal", "private-use suffix"},         // ICANN resolution 2024.07.29.06
	{"local", "multicast DNS suffix"},          // RFC 6762
	{"localhost", "loopback suffix"},           // RFC 6761, 6.3
	{"localdomain", "private-use suffix"},      //
	{"lan", "private-use suffix"},              // RFC 6762, appendix G
	{"home.arpa", "home network suffix"},       // RFC 8375
	{"svc", "cluster suffix"},                  //
	{"cluster.local", "cluster suffix"},        //
	{"arpa", "infrastructure suffix"},          // RFC 3172
	{"test", "reserved suffix"},                // RFC 6761, 6.2
	{"invalid", "reserved suffix"},             // RFC 6761, 6.4
	{"onion", "suffix of another name system"}, // RFC 7686
}

// PageHost is the host that the gate itself serves in every cell, on port 80 and
// under every policy: there a process of the sandbox learns what is allowed, and
// why something was not. The name is on the floor, so that no allowlist can have
// it lead elsewhere; Policy.Decide denies it as any other there.
const PageHost = "policy.sallyport.internal"

// dohHosts are public resolvers that answer DNS over HTTPS, with their
// subdomains. Whoever reaches one can look up, and so carry out, any name: no
// policy allows them unless an entry names them, or a name under them. The list
// is of the widely used ones and makes no claim to be whole; a resolver elsewhere
// gives a sandbox answers, but no route to what it learns.
var dohHosts = []string{
	"dns.google",                                                  // Google
	"cloudflare-dns.com", "one.one.one.one", "dns.cloudflare.com", // Cloudflare
	"cloudflare-gateway.com",
	"dns.quad9.net", "dns9.quad9.net", "dns10.quad9.net", "dns11.quad9.net", "dns12.quad9.net", // Quad9
	"doh.opendns.com", "doh.familyshield.opendns.com", "doh.sandbox.opendns.com", "doh.umbrella.com", // Cisco
	"dns.nextdns.io", "doh.nextdns.io",
	"adguard-dns.com", "dns.adguard.com", // AdGuard
	"doh.cleanbrowsing.org", // CleanBrowsing
	"dns.controld.com", "freedns.controld.com",
	"dns.mullvad.net", "doh.mullvad.net",
	"doh.dns.sb", "doh.libredns.gr", "dns.alidns.com", "doh.pub", "doh.360.cn", "dns.switch.ch",
	"dns0.eu", "doh.xfinity.com", "public.dns.iij.jp", "wikimedia-dns.org",
}

// resolverDetail is the detail of their refusal.
const resolverDetail = "a public DNS-over-HTTPS resolver, which needs an entry of its own"

// floorIndex maps a floor name to its row as rule and detail.
var floorIndex = func() map[string]floorRow {
	m := make(map[string]floorRow, len(floorNames))
	for _, r := range floorNames {
		m[r.name] = floorRow{rule: "." + r.name, detail: r.what + " is never allowed: ." + r.name}
	}
	return m
}()

type floorRow struct{ rule, detail string }

// OnFloor reports whether n is a metadata or internal name, which no policy
// allows, and which rule of the floor says so.
func (n Name) OnFloor() (rule string, bad bool) {
	row, bad := n.floor()
	return row.rule, bad
}

func (n Name) floor() (floorRow, bool) {
	for s, ok := n.s, n.s != ""; ok; s, ok = parent(s) {
		if row, bad := floorIndex[s]; bad {
			return row, true
		}
	}
	return floorRow{}, false
}

// parent cuts the first label off s; ok is false where nothing is left.
func parent(s string) (_ string, ok bool) {
	_, s, ok = strings.Cut(s, ".")
	return s, ok
}
