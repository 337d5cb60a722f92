package firewall

// A sourced row names one host, and with it all its subdomains, says what it is,
// and where that is written down.
type sourced struct{ host, what, source string }

// The lists that others keep of public resolvers.
const (
	listChromium = "https://chromium.googlesource.com/chromium/src/+/main/net/dns/public/doh_provider_entry.cc"
	listCurl     = "https://github.com/curl/curl/wiki/DNS-over-HTTPS"
	listBlocked  = "https://github.com/oneoffdallas/dohservers"
)

// resolvers are public servers that answer DNS over HTTPS. Whoever reaches one can
// look up, and so carry out, any name: no policy allows them unless an entry names
// them, or a name under them. The list is of the widely used ones and makes no
// claim to be whole; a resolver elsewhere gives a sandbox answers, but no route to
// what it learns.
var resolvers = []sourced{
	{"dns.google", "Google", "https://developers.google.com/speed/public-dns/docs/doh"},
	{"dns.google.com", "Google", listChromium},
	{"8888.google", "Google", listCurl},
	{"cloudflare-dns.com", "Cloudflare", "https://developers.cloudflare.com/1.1.1.1/infrastructure/network-operators/"},
	{"one.one.one.one", "Cloudflare", listChromium},
	{"dns.cloudflare.com", "Cloudflare", listBlocked},
	{"cloudflare-gateway.com", "Cloudflare Zero Trust", "https://developers.cloudflare.com/cloudflare-one/networks/resolvers-and-proxies/dns/locations/"},
	{"dns.quad9.net", "Quad9", "https://quad9.net/service/service-addresses-and-features/"},
	{"dns9.quad9.net", "Quad9", "https://quad9.net/news/blog/doh-with-quad9-dns-servers/"},
	{"dns10.quad9.net", "Quad9", listChromium},
	{"dns11.quad9.net", "Quad9", listChromium},
	{"dns12.quad9.net", "Quad9", listCurl},
	{"dns13.quad9.net", "Quad9", listBlocked},
	{"dns-nosec.quad9.net", "Quad9", listBlocked},
	{"doh.opendns.com", "Cisco OpenDNS", "https://support.opendns.com/hc/en-us/articles/360038086532-Using-DNS-over-HTTPS-DoH-with-OpenDNS"},
	{"doh.familyshield.opendns.com", "Cisco OpenDNS", "https://support.opendns.com/hc/en-us/articles/360038086532-Using-DNS-over-HTTPS-DoH-with-OpenDNS"},
	{"doh.sandbox.opendns.com", "Cisco OpenDNS", listBlocked},
	{"doh.umbrella.com", "Cisco Umbrella", listCurl},
	{"dns.nextdns.io", "NextDNS", listChromium},
	{"dns1.nextdns.io", "NextDNS", listBlocked},
	{"dns2.nextdns.io", "NextDNS", listBlocked},
	{"doh.nextdns.io", "NextDNS", hearsay},
	{"adguard-dns.com", "AdGuard", "https://adguard-dns.io/en/public-dns.html"},
	{"dns.adguard.com", "AdGuard", listBlocked},
	{"dns-family.adguard.com", "AdGuard", listBlocked},
	{"dns-unfiltered.adguard.com", "AdGuard", listBlocked},
	{"doh.cleanbrowsing.org", "CleanBrowsing", "https://cleanbrowsing.org/help/docs/dnsoverhttps/"},
	{"freedns.controld.com", "Control D", "https://controld.com/free-dns"},
	{"dns.controld.com", "Control D", "https://docs.controld.com/"},
	{"dns.mullvad.net", "Mullvad", "https://mullvad.net/en/help/dns-over-https-and-dns-over-tls"},
	{"doh.mullvad.net", "Mullvad", listBlocked},
	{"doh.dns.sb", "DNS.SB", "https://dns.sb/doh/"},
	{"doh.sb", "DNS.SB", "https://dns.sb/doh/"},
	{"doh.libredns.gr", "LibreDNS", "https://libredns.gr/"},
	{"dns.alidns.com", "Alibaba", "https://alidns.com/"},
	{"doh.pub", "Tencent DNSPod", "https://docs.dnspod.cn/public-dns/dot-doh/"},
	{"dns.pub", "Tencent DNSPod", "https://docs.dnspod.cn/public-dns/dot-doh/"},
	{"doh.360.cn", "360", listBlocked},
	{"dns.switch.ch", "Switch", "https://www.switch.ch/en/switch-public-dns"},
	{"dns0.eu", "dns0.eu", "https://www.dns0.eu/"},
	{"protective.joindns4.eu", "DNS4EU", "https://www.joindns4.eu/for-public"},
	{"child.joindns4.eu", "DNS4EU", "https://www.joindns4.eu/for-public"},
	{"noads.joindns4.eu", "DNS4EU", "https://www.joindns4.eu/for-public"},
	{"child-noads.joindns4.eu", "DNS4EU", "https://www.joindns4.eu/for-public"},
	{"unfiltered.joindns4.eu", "DNS4EU", "https://www.joindns4.eu/for-public"},
	{"doh.dns4all.eu", "DNS4all", "https://dns4all.eu/"},
	{"doh.xfinity.com", "Comcast", listChromium},
	{"doh.cox.net", "Cox", listChromium},
	{"doh-01.spectrum.com", "Charter", listChromium},
	{"doh-02.spectrum.com", "Charter", listChromium},
	{"doh.quickline.ch", "Quickline", listChromium},
	{"dns.levonet.sk", "Levonet", listChromium},
	{"odvr.nic.cz", "CZ.NIC", "https://www.nic.cz/odvr/"},
	{"public.dns.iij.jp", "IIJ", "https://public.dns.iij.jp/"},
	{"dns.twnic.tw", "TWNIC", listCurl},
	{"canadianshield.cira.ca", "CIRA", "https://www.cira.ca/cybersecurity-services/canadian-shield"},
	{"dns.telekom.de", "Deutsche Telekom", listCurl},
	{"wikimedia-dns.org", "Wikimedia", "https://wikitech.wikimedia.org/wiki/Wikimedia_DNS"},
	{"doh.applied-privacy.net", "Foundation for Applied Privacy", "https://applied-privacy.net/services/dns/"},
	{"dns.digitale-gesellschaft.ch", "Digitale Gesellschaft", "https://www.digitale-gesellschaft.ch/dns/"},
	{"doh.ffmuc.net", "Freifunk München", "https://ffmuc.net/wiki/doku.php?id=knb:dohdot_en"},
	{"dns.njal.la", "Njalla", "https://dns.njal.la/"},
	{"sky.rethinkdns.com", "RethinkDNS", "https://www.rethinkdns.com/"},
	{"dnsforge.de", "dnsforge", "https://dnsforge.de/"},
	{"dns.aa.net.uk", "Andrews & Arnold", "https://aa.net.uk/dns"},
	{"ns0.fdn.fr", "French Data Network", "https://www.fdn.fr/ouverture-des-services-dot-doh/"},
	{"ns1.fdn.fr", "French Data Network", "https://www.fdn.fr/ouverture-des-services-dot-doh/"},
	{"anycast.uncensoreddns.org", "UncensoredDNS", "https://blog.uncensoreddns.org/dns-servers/"},
	{"dns.comss.one", "Comss.one", listCurl},
	{"dns.bitdefender.net", "Bitdefender", listCurl},
	{"secure.avastdns.com", "Avast", "https://www.avast.com/dns"},
	{"dns1.nordvpn.com", "NordVPN", listCurl},
	{"dns2.nordvpn.com", "NordVPN", listCurl},
	{"dns.surfsharkdns.com", "Surfshark", "https://dns.surfsharkdns.com/"},
	{"safeservedns.com", "Namecheap", "https://www.namecheap.com/dns/free-public-dns/"},
	{"mydns.network", "mydns.network", "https://mydns.network/"},
	{"dns.hostux.net", "Hostux", "https://dns.hostux.net/en/"},
	{"doh.tiar.app", "Tiarap", "https://doh.tiar.app/"},
	{"dnscry.pt", "dnscry.pt", "https://www.dnscry.pt/"},
	{"doh.dns.apple.com", "Apple", listBlocked},
}

// resolverDetail is the detail of their refusal.
const resolverDetail = "a public DNS-over-HTTPS resolver, which needs an entry of its own"
