package resolve

import (
	"cmp"
	"fmt"
	"net/netip"
	"strings"
)

// A Transport is how a DNS server is spoken to.
type Transport string

// The transports.
const (
	OverUDP Transport = "udp" // and over TCP where an answer is cut
	OverTCP Transport = "tcp"
	OverTLS Transport = "tls" // RFC 7858
)

// The ports of DNS servers that name none.
const (
	portDNS = 53
	portDoT = 853
)

// A Server is a recursive server to ask.
type Server struct {
	Transport Transport // "" is OverUDP
	Addr      netip.AddrPort
	// Name is what the certificate of a server over TLS must be for; if empty,
	// its address.
	Name string
}

// UDPServer is the server at addr, asked over UDP.
func UDPServer(addr netip.AddrPort) Server { return Server{Transport: OverUDP, Addr: addr} }

// ParseServer reads what a person writes for a server: 10.0.0.53,
// udp://10.0.0.53:53, tcp://10.0.0.53 or tls://9.9.9.9:853#dns.quad9.net. A
// server has an address: a name would have to be looked up with another one.
func ParseServer(s string) (Server, error) {
	transport, rest, ok := strings.Cut(s, "://")
	if !ok {
		transport, rest = string(OverUDP), s
	}
	d := Server{Transport: Transport(transport)}
	port := uint16(portDNS)
	switch d.Transport {
	case OverUDP, OverTCP:
	case OverTLS:
		port = portDoT
		var named bool
		if rest, d.Name, named = strings.Cut(rest, "#"); named && !isHostName(d.Name) {
			return Server{}, fmt.Errorf("%q: after the # goes the host name in the server's certificate", s)
		}
	default:
		return Server{}, fmt.Errorf("%q: a DNS server is asked over udp, tcp or tls, not %s", s, transport)
	}
	if a, err := netip.ParseAddr(strings.Trim(rest, "[]")); err == nil {
		d.Addr = netip.AddrPortFrom(a, port)
		return d, nil
	}
	addr, err := netip.ParseAddrPort(rest)
	if err != nil || addr.Port() == 0 {
		return Server{}, fmt.Errorf("%q is not the address of a DNS server, such as 192.0.2.1:53 or tls://192.0.2.1#dns.example.com", s)
	}
	d.Addr = addr
	return d, nil
}

func isHostName(s string) bool {
	return s != "" && len(s) < 254 && strings.Trim(strings.ToLower(s), "abcdefghijklmnopqrstuvwxyz0123456789-.") == ""
}

// String is the form that ParseServer reads.
func (d Server) String() string {
	s := string(cmp.Or(d.Transport, OverUDP)) + "://" + d.Addr.String()
	if d.Name != "" {
		s += "#" + d.Name
	}
	return s
}
