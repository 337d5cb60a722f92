package allowlist

import (
	"cmp"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml/ast"
	"golang.org/x/net/publicsuffix"

	"sallyport/firewall"
	"sallyport/firewall/hosts"
	"sallyport/internal/strictyaml"
)

// maxPorts bounds the ports of one entry.
const maxPorts = 32

// readItem reads "group", "host.tld" or {host: ...}.
func (l *loader) readItem(n ast.Node, field string) (Item, bool) {
	switch n := n.(type) {
	case *ast.MappingNode, *ast.MappingValueNode:
		return l.readEntry(n, field)
	case *ast.AliasNode: // what YAML makes of an unquoted star
		l.Fault(strictyaml.At(n.GetToken()), field, "%s", starFault("*"+n.Value.GetToken().Value))
		return Item{}, false
	}
	s, p, ok := l.Scalar(n, field, "a group or a host")
	if !ok {
		return Item{}, false
	}
	item := Item{At: p, Field: field}
	if !looksLikeHost(s) {
		item.Group = s
		return item, true
	}
	item.Host, ok = l.readHost(s, p, field)
	return item, ok
}

func looksLikeHost(s string) bool {
	return strings.ContainsAny(s, ".:*/") || s == "" || firewall.IsNumber(s)
}

// readEntry reads {host: ..., ports: [...], private: [...], via: ...}.
func (l *loader) readEntry(n ast.Node, field string) (Item, bool) {
	fields := l.Mapping(n, field, wordHost, wordPorts, wordPrivate, wordVia)
	host, ok := fields[wordHost]
	if !ok {
		l.Fault(strictyaml.Start(n), field, `has no host: write {host: .example.com, ports: [443]}`)
		return Item{}, false
	}
	if a, isAlias := host.(*ast.AliasNode); isAlias {
		l.Fault(strictyaml.At(a.GetToken()), field+"."+wordHost, "%s", starFault("*"+a.Value.GetToken().Value))
		return Item{}, false
	}
	s, p, ok := l.Scalar(host, field+"."+wordHost, "a host")
	if !ok {
		return Item{}, false
	}
	e, ok := l.readHost(s, p, field+"."+wordHost)
	if !ok {
		return Item{}, false
	}
	item := Item{At: strictyaml.Start(n), Field: field, Host: e}
	if n, has := fields[wordPorts]; has {
		if ports := l.readPorts(n, field+"."+wordPorts); ports != nil {
			e.Ports, item.ports = ports, true
		}
	}
	if n, has := fields[wordPrivate]; has {
		e.Private = l.readPrivate(n, field+"."+wordPrivate)
	}
	if n, has := fields[wordVia]; has {
		e.Via = l.readVia(n, field+"."+wordVia)
	}
	return item, true
}

// readHost reads a host as an entry spells it.
func (l *loader) readHost(s string, p Pos, field string) (*firewall.Entry, bool) {
	bare, tree := strings.CutPrefix(s, ".")
	name, err := firewall.ParseName(bare)
	if err != nil {
		l.Fault(p, field, "%s", hostFault(s, bare, err))
		return nil, false
	}
	if rule, bad := name.OnFloor(); bad {
		l.Fault(p, field, "%s can never be allowed: %s is for metadata services and internal names", quote(s), rule)
		return nil, false
	}
	host := name.String()
	suffix, icann := publicsuffix.PublicSuffix(host)
	if suffix == host && icann || tree && holdsSuffixes(host) {
		l.Fault(p, field, "%s is a public suffix, under which anybody can register: name the hosts that are meant", quote(s))
		return nil, false
	}
	if suffix == host && tree && !slices.Contains(ownSuffixes[:], suffix) {
		l.warn(p, field, "anybody can get a host under %s: name the hosts that are meant", quote(s))
	} else if r, opens := publishedUnder(host, tree); opens {
		l.warn(p, field, "%s opens %s, %s: name the hosts that are meant", quote(s), r.Host, r.What)
	}
	return &firewall.Entry{
		Scope: firewall.Scope{Name: name, Subdomains: tree}, Ports: []uint16{firewall.DefaultPort}, Written: s, Line: p.Line,
	}, true
}

// publishedUnder finds what an entry for host, with its subdomains if tree, opens of
// the suffixes under which anybody can publish: host itself, or one below it.
func publishedUnder(host string, tree bool) (hosts.Row, bool) {
	for r := range hosts.UserContent.All() {
		if r.Host == host || tree && strings.HasSuffix(r.Host, "."+host) {
			return r, true
		}
	}
	return hosts.Row{}, false
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
			if !firewall.Served(uint16(port)) {
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

// parsePrivate reads one range, and says what is wrong with it.
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
	_, problem = firewall.JudgeRange(p)
	return p, problem
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

// readVia reads the name of the proxy by way of which a host is reached. Where
// that proxy is, and its credentials, is for the gate's settings: they have no
// place in a file that is reviewed and shared.
func (l *loader) readVia(n ast.Node, field string) string {
	s, p, ok := l.Scalar(n, field, "the name of a proxy")
	if ok && !nameForm.MatchString(s) {
		l.Fault(p, field, "%s is not the name of a proxy, which stands in the gate's settings: %s", quote(s), nameFormText)
		return ""
	}
	return s
}
