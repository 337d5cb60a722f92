package firewall

import (
	"net/netip"
	"slices"
	"strings"
)

// maxAnswer is the most addresses of one name that are looked at.
const maxAnswer = 64

// An addressRow is one range that must not be dialled.
type addressRow struct {
	prefix netip.Prefix
	what   string // and its source
	// admit says that an operator may admit the range, or a part of it, for one
	// host with "private:".
	admit bool
}

func row(prefix, what string, admit bool) addressRow {
	return addressRow{netip.MustParsePrefix(prefix), what, admit}
}

// metadataAddresses are the clouds' metadata and platform services: refused even
// where a wider range is admitted. From the documentation of each cloud; rows
// marked recalled are from memory.
var metadataAddresses = []addressRow{
	row("169.254.169.254/32", "metadata of AWS, GCP, Azure, OCI, OpenStack, DigitalOcean, Linode and others", false),
	row("169.254.169.253/32", "AWS DNS", false), // recalled
	row("169.254.169.123/32", "AWS NTP", false), // recalled
	row("169.254.170.2/32", "AWS ECS metadata", false),
	row("169.254.170.23/32", "AWS EKS metadata", false),
	row("169.254.0.23/32", "Tencent metadata", false),
	row("169.254.42.42/32", "Scaleway metadata", false),
	row("169.254.169.250/32", "Rancher metadata", false), // recalled
	row("100.100.100.200/32", "Alibaba metadata", false),
	row("168.63.129.16/32", "Azure platform", false), // in public space
	row("192.0.0.192/32", "OCI Classic metadata", false),
	row("fd00:ec2::/32", "AWS metadata", false),
	row("fd20:ce::254/128", "GCP metadata", false),
	row("fd00:c1::a9fe:a9fe/128", "OCI metadata", false),
	row("fd00:42::42/128", "Scaleway metadata", false),
	row("fd00:a9fe:a9fe::1/128", "Linode metadata", false),
	row("fe80::a9fe:a9fe/128", "OpenStack metadata", false),
	row("fd00:100::100:200/128", "Alibaba metadata", false),
	row("fdaa::/16", "Fly metadata", false), // recalled
}

// refused4 is the IANA IPv4 Special-Purpose Address Registry, and what else is
// not a host of the public internet.
var refused4 = []addressRow{
	row("0.0.0.0/8", "this network, RFC 791", false),
	row("10.0.0.0/8", "private use, RFC 1918", true),
	row("100.64.0.0/10", "shared address space, RFC 6598", true),
	row("127.0.0.0/8", "loopback, RFC 1122", true),
	row("169.254.0.0/16", "link-local, RFC 3927", false),
	row("172.16.0.0/12", "private use, RFC 1918", true),
	row("192.0.0.0/24", "IETF protocol assignments, RFC 6890", false),
	row("192.0.2.0/24", "documentation, RFC 5737", true),
	row("192.31.196.0/24", "AS112, RFC 7535", false),
	row("192.52.193.0/24", "AMT, RFC 7450", false),
	row("192.88.99.0/24", "6to4 relay anycast, RFC 7526", false),
	row("192.168.0.0/16", "private use, RFC 1918", true),
	row("192.175.48.0/24", "AS112, RFC 7534", false),
	row("198.18.0.0/15", "benchmarking, RFC 2544", true),
	row("198.51.100.0/24", "documentation, RFC 5737", true),
	row("203.0.113.0/24", "documentation, RFC 5737", true),
	row("224.0.0.0/4", "multicast, RFC 1112", false),
	row("240.0.0.0/4", "reserved and broadcast, RFC 1112", false),
	row("168.63.129.16/32", "Azure platform", false),
}

// global6 is the only IPv6 space that IANA has allocated to hosts; refused6 are
// the rows of the IANA IPv6 Special-Purpose Address Registry inside it and, for
// the sake of the explanation, those outside.
var (
	global6  = netip.MustParsePrefix("2000::/3")
	refused6 = []addressRow{
		row("2001::/23", "IETF protocol assignments (Teredo, ORCHID, benchmarking), RFC 2928", false),
		row("2001:db8::/32", "documentation, RFC 3849", true),
		row("2002::/16", "6to4, RFC 3056", false),
		row("2620:4f:8000::/48", "AS112, RFC 7534", false),
		row("3fff::/20", "documentation, RFC 9637", true),
		row("3ffe::/16", "6bone, RFC 3701", false), // recalled

		row("::/128", "unspecified, RFC 4291", false),
		row("::1/128", "loopback, RFC 4291", true),
		row("::/96", "IPv4-compatible, RFC 4291", false),
		row("::ffff:0:0/96", "IPv4-mapped, RFC 4291", false),
		row("::ffff:0:0:0/96", "IPv4-translated, RFC 2765", false),
		row("64:ff9b::/96", "NAT64, RFC 6052", false),
		row("64:ff9b:1::/48", "NAT64, RFC 8215", false),
		row("100::/64", "discard, RFC 6666", false),
		row("100:0:0:1::/64", "dummy prefix, RFC 9780", false),
		row("5f00::/16", "segment routing, RFC 9602", false),
		row("fc00::/7", "unique local, RFC 4193", true),
		row("fe80::/10", "link-local, RFC 4291", false),
		row("fec0::/10", "site-local, RFC 3879", false),
		row("ff00::/8", "multicast, RFC 4291", false),
	}
)

// JudgeAddr reports whether a may be dialled at all: the floor, without what a
// policy admits. For an address that may not, detail says why. An IPv4 address
// in its IPv6-mapped form is refused: a caller that gets such forms from its
// resolver for plain IPv4 answers unmaps them first.
func JudgeAddr(a netip.Addr) (ok bool, detail string) {
	return judge(a, nil, nil)
}

// JudgeAddr is JudgeAddr with what Refuse has added.
func (ps *Policies) JudgeAddr(a netip.Addr) (ok bool, detail string) {
	if ps == nil {
		return judge(a, nil, nil)
	}
	return judge(a, nil, ps.refused)
}

// JudgeAddr reports whether a may be dialled for the name that d allowed: the
// floor, less the private ranges of the entry that decided, and what the operator
// refuses. A decision that denies admits no address.
func (d Decision) JudgeAddr(a netip.Addr) (ok bool, detail string) {
	if !d.Allowed() {
		return false, "the name is not allowed"
	}
	return judge(a, d.private, d.refused)
}

// Judge is all that p says of a host, a port and the addresses that the host's name led
// to, without asking anybody: Decide, and JudgeAnswer where there are addresses. refusals
// has for each address why it may not be dialled, empty where it may.
func (p *Policy) Judge(host string, port uint16, addrs []netip.Addr) (d Decision, refusals []string) {
	name, err := ParseName(host)
	if err != nil {
		return Decision{Verdict: Deny, Reason: ReasonBadName, Detail: err.Error()}, slices.Repeat([]string{"the name is not allowed"}, len(addrs))
	}
	d = p.Decide(name, port)
	if !d.Allowed() {
		return d, slices.Repeat([]string{"the name is not allowed"}, len(addrs))
	}
	for _, a := range addrs {
		_, detail := d.JudgeAddr(a)
		refusals = append(refusals, detail)
	}
	if len(addrs) > 0 {
		if ok, detail := JudgeAnswer(d, addrs); !ok {
			d.Verdict, d.Reason, d.Detail = Deny, ReasonAddress, detail
		}
	}
	return d, refusals
}

// JudgeAnswer judges all the addresses that the name of d resolved to. One that
// is refused spoils the whole answer, since whoever controls the name controls
// which of them is dialled next; so do an empty answer and one of more than 64.
func JudgeAnswer(d Decision, addrs []netip.Addr) (ok bool, detail string) {
	switch {
	case !d.Allowed():
		return false, "the name is not allowed"
	case len(addrs) == 0:
		return false, "the answer holds no address"
	case len(addrs) > maxAnswer:
		return false, "the answer holds more than 64 addresses"
	}
	for _, a := range addrs {
		if ok, detail := d.JudgeAddr(a); !ok {
			return false, detail
		}
	}
	return true, ""
}

func judge(a netip.Addr, admitted, refused []netip.Prefix) (ok bool, detail string) {
	switch {
	case !a.IsValid():
		return false, "not an address"
	case a.Zone() != "":
		return false, Escape(a.String(), 80) + " has a zone"
	case a.Is4In6():
		return false, a.String() + " is in ::ffff:0:0/96: IPv4-mapped, RFC 4291"
	}
	for _, p := range refused {
		if p.Contains(a) {
			return false, a.String() + " is in " + p.String() + ": refused by the gate's settings"
		}
	}
	if r := find(metadataAddresses, a); r != nil {
		return false, r.refusal(a)
	}
	if isISATAP(a) {
		return false, a.String() + " is an ISATAP address, RFC 5214"
	}
	r, outside := lookUp(a)
	if r == nil && !outside {
		return true, ""
	}
	if r != nil && r.admit {
		for _, p := range admitted {
			if p.Contains(a) {
				return true, ""
			}
		}
	}
	if r == nil {
		return false, a.String() + " is outside 2000::/3, the global unicast space"
	}
	return false, r.refusal(a)
}

// lookUp finds the row that refuses a, and whether a is IPv6 space that is not
// global.
func lookUp(a netip.Addr) (r *addressRow, outside bool) {
	if a.Is4() {
		return find(refused4, a), false
	}
	return find(refused6, a), !global6.Contains(a)
}

func find(rows []addressRow, a netip.Addr) *addressRow {
	for i := range rows {
		if rows[i].prefix.Contains(a) {
			return &rows[i]
		}
	}
	return nil
}

func (r *addressRow) refusal(a netip.Addr) string {
	return strings.Join([]string{a.String(), " is in ", r.prefix.String(), ": ", r.what}, "")
}

// isISATAP reports an interface identifier 0000:5efe or 0200:5efe, which embeds
// an IPv4 address (RFC 5214, 6.1).
func isISATAP(a netip.Addr) bool {
	if !a.Is6() {
		return false
	}
	b := a.As16()
	return b[8]&^0x02 == 0 && b[9] == 0 && b[10] == 0x5e && b[11] == 0xfe
}

// JudgeRange reports whether an entry may admit the private addresses of p, which has no
// bits beyond its length. It must lie in a row of the floor that may be admitted: what
// is public needs no admission, and the rest is never dialled. For a range that may not
// be, detail says why.
func JudgeRange(p netip.Prefix) (ok bool, detail string) {
	if r := within(metadataAddresses, p); r != nil {
		return false, "can never be admitted: " + r.what
	}
	rows := refused6
	if p.Addr().Is4() {
		rows = refused4
	}
	switch r := within(rows, p); {
	case r == nil && !overlapsAny(rows, p) && (p.Addr().Is4() || global6.Contains(p.Addr())):
		return false, "is public, and needs no admission: remove it"
	case r == nil:
		return false, "is not inside one private range such as 10.0.0.0/8, 172.16.0.0/12, 192.168.0.0/16 or fc00::/7"
	case !r.admit:
		return false, "can never be admitted: " + r.what
	}
	return true, ""
}

// within finds the row that holds all of p.
func within(rows []addressRow, p netip.Prefix) *addressRow {
	for i := range rows {
		if r := &rows[i]; r.prefix.Bits() <= p.Bits() && r.prefix.Contains(p.Addr()) {
			return r
		}
	}
	return nil
}

func overlapsAny(rows []addressRow, p netip.Prefix) bool {
	return slices.ContainsFunc(rows, func(r addressRow) bool { return r.prefix.Overlaps(p) })
}
