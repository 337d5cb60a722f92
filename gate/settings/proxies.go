package settings

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"

	"sallyport/sniproxy/reach"
)

// A Named is "name=value" in a list of the settings.
type Named struct{ Name, Value string }

func (n *Named) UnmarshalText(text []byte) error {
	name, value, ok := strings.Cut(strings.TrimSpace(string(text)), "=")
	if !ok || name == "" || value == "" {
		return fmt.Errorf("%q is not name=value, such as corp=10.0.0.9:3128", text)
	}
	*n = Named{name, value}
	return nil
}

// ProxyAddrs are the addresses of the proxies by their names.
func (s Settings) ProxyAddrs() (map[string]netip.AddrPort, error) {
	addrs := make(map[string]netip.AddrPort)
	for _, n := range s.Proxies {
		if _, twice := addrs[n.Name]; twice {
			return nil, fmt.Errorf("settings: the proxy %s is given twice", n.Name)
		}
		addr, err := netip.ParseAddrPort(n.Value)
		if err != nil || addr.Port() == 0 {
			return nil, fmt.Errorf("settings: the proxy %s: %q is not an address with a port, such as 10.0.0.9:3128", n.Name, n.Value)
		}
		if n.Name == "none" { // as the allowlist says for no proxy
			return nil, errors.New("settings: no proxy can be called none: choose another name")
		}
		addrs[n.Name] = addr
	}
	return addrs, nil
}

// ProxiesByName are those of the settings, with their credentials, which are read from
// their files now.
func (s Settings) ProxiesByName() (map[string]reach.Proxy, error) {
	addrs, err := s.ProxyAddrs()
	if err != nil {
		return nil, err
	}
	proxies := make(map[string]reach.Proxy)
	for name, addr := range addrs {
		proxies[name] = reach.Proxy{Addr: addr, ByAddress: slices.Contains(s.ProxyByAddress, name)}
	}
	for _, n := range s.ProxyCredentials {
		p, ok := proxies[n.Name]
		if !ok {
			return nil, fmt.Errorf("settings: credentials for the proxy %s, which there is not", n.Name)
		}
		text, err := os.ReadFile(n.Value)
		if err != nil {
			return nil, fmt.Errorf("settings: the credentials for the proxy %s: %w", n.Name, err)
		}
		p.Credentials = strings.TrimRight(string(text), "\r\n")
		if !strings.Contains(p.Credentials, ":") {
			return nil, fmt.Errorf("settings: the file %s does not hold user:password", n.Value)
		}
		proxies[n.Name] = p
	}
	for _, name := range s.ProxyByAddress {
		if _, ok := proxies[name]; !ok {
			return nil, fmt.Errorf("settings: the proxy %s is to be asked by address, and there is none of that name", name)
		}
	}
	return proxies, nil
}
