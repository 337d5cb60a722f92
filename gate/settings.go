package gate

import (
	"fmt"
	"net/netip"
	"os"
	"strings"

	"github.com/caarlos0/env/v11"

	"sallyport/sniproxy"
)

// envPrefix is that of the variables which hold the settings.
const envPrefix = "SALLYPORT_"

// Settings are what an operator may set, by variables of the environment with
// the prefix SALLYPORT_.
type Settings struct {
	// Allowlist is the path of the file of policies.
	Allowlist string `env:"ALLOWLIST" envDefault:"/etc/sallyport/allowlist.yaml"`
	// ControlSocket is the path of the unix socket of the control API.
	ControlSocket string `env:"CONTROL_SOCKET" envDefault:"/run/sallyport/control.sock"`
	// Resolvers are the DNS servers that the gate asks, as a list with commas; a
	// port of 53 may be left out. If there are none, those of /etc/resolv.conf.
	Resolvers []server53 `env:"RESOLVERS"`
}

// ParseSettings reads the settings from an environment in the form of os.Environ.
func ParseSettings(environ []string) (Settings, error) {
	var s Settings
	err := env.ParseWithOptions(&s, env.Options{Prefix: envPrefix, Environment: env.ToMap(environ)})
	if err != nil {
		return Settings{}, fmt.Errorf("settings: %w", err)
	}
	return s, nil
}

// resolver is the one that the settings ask for.
func (s Settings) resolver() (sniproxy.Resolver, error) {
	if len(s.Resolvers) == 0 {
		r, err := sniproxy.SystemResolver("/etc/resolv.conf")
		if err != nil {
			return nil, fmt.Errorf("the system's resolvers: %w", err)
		}
		return r, nil
	}
	r := &sniproxy.DNSResolver{}
	for _, a := range s.Resolvers {
		r.Servers = append(r.Servers, netip.AddrPort(a))
	}
	return r, nil
}

// A server53 is the address of a DNS server.
type server53 netip.AddrPort

func (s *server53) UnmarshalText(text []byte) error {
	t := strings.TrimSpace(string(text))
	if a, err := netip.ParseAddr(t); err == nil {
		*s = server53(netip.AddrPortFrom(a, 53))
		return nil
	}
	a, err := netip.ParseAddrPort(t)
	if err != nil || a.Port() == 0 {
		return fmt.Errorf("%q is not an address with a port, such as 192.0.2.1:53", t)
	}
	*s = server53(a)
	return nil
}

// forwardWarning says so if this machine forwards packets: cells are separate
// only as long as nothing routes between them.
func forwardWarning(procfs string) string {
	v, err := os.ReadFile(procfs)
	switch {
	case err != nil:
		return "cannot tell whether this machine forwards packets: " + err.Error()
	case strings.TrimSpace(string(v)) != "0":
		return "this machine forwards packets (net.ipv4.ip_forward is on): the gate must not route between cells; " +
			"set the sysctl to 0 in its container"
	}
	return ""
}
