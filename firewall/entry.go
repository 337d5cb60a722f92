package firewall

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml/ast"
	"golang.org/x/net/publicsuffix"

	"sallyport/internal/strictyaml"
)

// maxPorts bounds the ports of one entry.
const maxPorts = 32

// pattern is the host in its canonical spelling, with the dot that means every
// subdomain.
func (e *entry) pattern() string {
	if e.tree {
		return "." + e.host.s
	}
	return e.host.s
}

// readItem reads "group", "host.tld" or {host: ...}.
func (l *loader) readItem(n ast.Node, field string) (rawItem, bool) {
	switch n := n.(type) {
	case *ast.MappingNode, *ast.MappingValueNode:
		e, ok := l.readEntry(n, field)
		return rawItem{at: strictyaml.Start(n), field: field, entry: e}, ok
	case *ast.AliasNode: // what YAML makes of an unquoted star
		l.Fault(strictyaml.At(n.GetToken()), field, "%s", starFault("*"+n.Value.GetToken().Value))
		return rawItem{}, false
	}
	s, p, ok := l.Scalar(n, field, "a group or a host")
	if !ok {
		return rawItem{}, false
	}
	item := rawItem{at: p, field: field}
	if !looksLikeHost(s) {
		item.group = s
		return item, true
	}
	item.entry, ok = l.readHost(s, p, field)
	return item, ok
}

func looksLikeHost(s string) bool {
	return strings.ContainsAny(s, ".:*/") || s == "" || isNumber(s)
}

// readEntry reads {host: ..., ports: [...], private: [...], via: ...}.
func (l *loader) readEntry(n ast.Node, field string) (*entry, bool) {
	fields := l.Mapping(n, field, wordHost, wordPorts, wordPrivate, wordVia)
	host, ok := fields[wordHost]
	if !ok {
		l.Fault(strictyaml.Start(n), field, `has no host: write {host: .example.com, ports: [443]}`)
		return nil, false
	}
	if a, isAlias := host.(*ast.AliasNode); isAlias {
		l.Fault(strictyaml.At(a.GetToken()), field+"."+wordHost, "%s", starFault("*"+a.Value.GetToken().Value))
		return nil, false
	}
	s, p, ok := l.Scalar(host, field+"."+wordHost, "a host")
	if !ok {
		return nil, false
	}
	e, ok := l.readHost(s, p, field+"."+wordHost)
	if !ok {
		return nil, false
	}
	if n, has := fields[wordPorts]; has {
		e.ports = l.readPorts(n, field+"."+wordPorts)
		e.badPort = badPort(e.portList())
	}
	if n, has := fields[wordPrivate]; has {
		e.private = l.readPrivate(n, field+"."+wordPrivate)
	}
	if n, has := fields[wordVia]; has {
		e.via = l.readVia(n, field+"."+wordVia)
	}
	return e, true
}

// readHost reads a host as an entry spells it.
func (l *loader) readHost(s string, p strictyaml.Pos, field string) (*entry, bool) {
	bare, tree := strings.CutPrefix(s, ".")
	name, err := ParseName(bare)
	if err != nil {
		l.Fault(p, field, "%s", hostFault(s, bare, err))
		return nil, false
	}
	if rule, bad := name.OnFloor(); bad {
		l.Fault(p, field, "%s can never be allowed: %s is for metadata services and internal names", quote(s), rule)
		return nil, false
	}
	suffix, icann := publicsuffix.PublicSuffix(name.s)
	if suffix == name.s && icann || tree && holdsSuffixes(name.s) {
		l.Fault(p, field, "%s is a public suffix, under which anybody can register: name the hosts that are meant", quote(s))
		return nil, false
	}
	if suffix == name.s && tree && !slices.Contains(ownSuffixes[:], suffix) {
		l.warn(p, field, "anybody can get a host under %s: name the hosts that are meant", quote(s))
	} else if r := publishedUnder(name, tree); r != nil {
		l.warn(p, field, "%s opens %s, %s: name the hosts that are meant", quote(s), r.host, r.what)
	}
	e := &entry{host: name, tree: tree, written: s, line: p.Line}
	e.badPort = badPort(e.portList())
	return e, true
}

// badPort is the detail of a refusal for a port that is not in ports.
func badPort(ports []uint16) string {
	return "ports allowed: " + strings.Trim(strings.ReplaceAll(fmt.Sprint(ports), " ", ", "), "[]")
}

// holdsSuffixes reports whether the names right under s are public suffixes, as
// those of kobe.jp are, which is none itself.
func holdsSuffixes(s string) bool {
	below := "sallyport." + s
	suffix, icann := publicsuffix.PublicSuffix(below)
	return suffix == below && icann
}

// ownSuffixes are on the public suffix list for the sake of cookies, while what
// is served under them is chosen by path, not by host.
var ownSuffixes = [...]string{"githubusercontent.com"}

func (l *loader) readPorts(n ast.Node, field string) []uint16 {
	var ports []uint16
	for i, n := range l.List(n, field, "ports") {
		t := strictyaml.First(n)
		port, err := strconv.ParseUint(t.Value, 10, 16)
		switch {
		case err != nil || port == 0 || n.Type() != ast.IntegerType || t.Value[0] == '0' || t.Value[0] == '+':
			l.Fault(strictyaml.At(t), field, "%s is not a port: write a number from 1 to 65535", l.Describe(n))
		case slices.Contains(ports, uint16(port)):
			l.Fault(strictyaml.At(t), field, "port %d is in the list already", port)
		case i >= maxPorts:
			l.Fault(strictyaml.At(t), field, "more than %d ports", maxPorts)
			return ports
		default:
			ports = append(ports, uint16(port))
			if !slices.Contains(openPorts[:], uint16(port)) {
				l.warn(strictyaml.At(t), field, "the gate serves ports 80 and 443: nothing can reach port %d", port)
			}
		}
	}
	slices.Sort(ports)
	return ports
}

// readPrivate reads the ranges that an entry admits beside public addresses.
func (l *loader) readPrivate(n ast.Node, field string) []netip.Prefix {
	var ps []netip.Prefix
	for _, n := range l.List(n, field, "address ranges") {
		s, at, ok := l.Scalar(n, field, "an address range")
		if !ok {
			continue
		}
		p, problem := parsePrivate(s)
		if problem == "" && slices.Contains(ps, p) {
			problem = "is in the list already"
		}
		if problem != "" {
			l.Fault(at, field, "%s %s", quote(s), problem)
			continue
		}
		ps = append(ps, p)
	}
	return canonicalRanges(ps)
}

// parsePrivate judges one range. It must lie in a row of the floor that may be
// admitted: what is public needs no admission, and the rest is never dialled.
func parsePrivate(s string) (p netip.Prefix, problem string) {
	p, err := netip.ParsePrefix(s)
	if err != nil {
		if a, err := netip.ParseAddr(s); err == nil && a.Zone() == "" {
			return p, "is an address, not a range: write " + quote(netip.PrefixFrom(a, a.BitLen()).String())
		}
		return p, "is not an address range such as 10.20.0.0/16"
	}
	if p != p.Masked() {
		return p, "has bits beyond its length: write " + quote(p.Masked().String())
	}
	if r := within(metadataAddresses, p); r != nil {
		return p, "can never be admitted: " + r.what
	}
	rows := refused6
	if p.Addr().Is4() {
		rows = refused4
	}
	switch r := within(rows, p); {
	case r == nil && !overlapsAny(rows, p) && (p.Addr().Is4() || global6.Contains(p.Addr())):
		return p, "is public, and needs no admission: remove it"
	case r == nil:
		return p, "is not inside one private range such as 10.0.0.0/8, 172.16.0.0/12, 192.168.0.0/16 or fc00::/7"
	case !r.admit:
		return p, "can never be admitted: " + r.what
	}
	return p, ""
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

// canonicalRanges sorts ps and drops what another range holds already.
func canonicalRanges(ps []netip.Prefix) []netip.Prefix {
	slices.SortFunc(ps, func(a, b netip.Prefix) int {
		return cmp.Or(a.Addr().Compare(b.Addr()), cmp.Compare(a.Bits(), b.Bits()))
	})
	var out []netip.Prefix
	for _, p := range ps {
		if n := len(out); n == 0 || !out[n-1].Contains(p.Addr()) {
			out = append(out, p)
		}
	}
	return out
}
