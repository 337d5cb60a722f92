// Package settings are what an operator may set for the gate, by variables of the
// environment, and what is made of them.
package settings

import (
	"crypto/x509"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"time"

	"github.com/docker/go-units"
	// The image holds no certificates: these are the authorities of DNS servers
	// over TLS where the machine has none.
	_ "golang.org/x/crypto/x509roots/fallback"

	"sallyport/internal/envvars"
	"sallyport/sniproxy/resolve"
)

// Settings are what an operator may set, by variables of the environment with
// the prefix SALLYPORT_.
type Settings struct {
	// Allowlist is the path of the file of policies.
	Allowlist string `env:"ALLOWLIST" envDefault:"/etc/sallyport/allowlist.yaml"`
	// ControlSocket is the path of the unix socket of the control API.
	ControlSocket string `env:"CONTROL_SOCKET" envDefault:"/run/sallyport/control.sock"`
	// Resolvers are the DNS servers that the gate asks, as a list with commas, in
	// the form of resolve.ParseServer. If there are none, those of
	// /etc/resolv.conf.
	Resolvers []DNSServer `env:"RESOLVERS"`
	// ResolverCA is the path of a PEM file with the authorities of servers over
	// TLS; if empty, the public ones.
	ResolverCA string `env:"RESOLVER_CA"`
	// CacheNames is how many names the cache of each cell holds; 0 is no cache.
	// An answer is kept for its TTL, within CacheMin and CacheMax.
	CacheNames int           `env:"CACHE_NAMES" envDefault:"1024"`
	CacheMin   time.Duration `env:"CACHE_MIN" envDefault:"5s"`
	CacheMax   time.Duration `env:"CACHE_MAX" envDefault:"5m"`
	// Proxies are HTTP proxies by way of which entries of the allowlist may be
	// reached, as name=address:port; ProxyCredentials the files of those that want
	// user:password, as name=path, and ProxyByAddress the names of those that are
	// asked for the judged address instead of the name.
	Proxies          []Named  `env:"PROXIES"`
	ProxyCredentials []Named  `env:"PROXY_CREDENTIALS"`
	ProxyByAddress   []string `env:"PROXY_BY_ADDRESS"`
	// RefusedPrefixes are networks that no host may lead to, whatever the allowlist says.
	RefusedPrefixes []refusedPrefix `env:"REFUSED_PREFIXES"`
	// StalledBytes is how much memory connections may hold, over all cells, for an end
	// that does not read; a cell may hold a quarter of it.
	StalledBytes Bytes `env:"STALLED_BYTES" envDefault:"128MiB"`
	// MetricsListen is an address with a port where the metrics are served over
	// TCP, too; it must not be in a cell. If empty, on the control socket only.
	MetricsListen Address `env:"METRICS_LISTEN"`
	// DecisionLog is the path of a file that gets the decisions, too, and is
	// rotated; if empty, there is none.
	DecisionLog string `env:"DECISION_LOG"`
	// DecisionLogSize is that of one file, DecisionLogFiles how many are kept.
	DecisionLogSize  Bytes `env:"DECISION_LOG_SIZE" envDefault:"64MiB"`
	DecisionLogFiles int   `env:"DECISION_LOG_FILES" envDefault:"4"`
}

// Parse reads the settings from an environment in the form of os.Environ.
func Parse(environ []string) (Settings, error) {
	var s Settings
	if _, err := envvars.Parse(&s, environ); err != nil {
		return Settings{}, fmt.Errorf("settings: %w", err)
	}
	if s.CacheNames < 0 || s.CacheMin < 0 || s.CacheMax < s.CacheMin {
		return Settings{}, fmt.Errorf("settings: a cache of %d names that keeps answers for %v to %v", s.CacheNames, s.CacheMin, s.CacheMax)
	}
	return s, nil
}

// Bytes is a number of bytes, written as 64MiB.
type Bytes int64

func (s *Bytes) UnmarshalText(text []byte) error {
	n, err := units.RAMInBytes(string(text))
	if err != nil || n <= 0 {
		return fmt.Errorf("%q is not a size such as 64MiB", text)
	}
	*s = Bytes(n)
	return nil
}

// Resolver is the one that the settings ask for.
func (s Settings) Resolver() (*resolve.Client, error) {
	if len(s.Resolvers) == 0 {
		r, err := resolve.System("/etc/resolv.conf")
		if err != nil {
			return nil, fmt.Errorf("the system's resolvers: %w", err)
		}
		return r, nil
	}
	r := &resolve.Client{}
	for _, d := range s.Resolvers {
		r.Servers = append(r.Servers, resolve.Server(d))
	}
	return r, nil
}

// Authorities are those of DNS servers over TLS, read from their file now; nil for
// the public ones.
func (s Settings) Authorities() (*x509.CertPool, error) {
	if s.ResolverCA == "" {
		return nil, nil
	}
	pem, err := os.ReadFile(s.ResolverCA)
	if err != nil {
		return nil, fmt.Errorf("the resolvers' authorities: %w", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("the resolvers' authorities: %s holds no certificate", s.ResolverCA)
	}
	return roots, nil
}

// ResolverNames are the DNS servers of the settings, as they may be written there.
func (s Settings) ResolverNames() []string {
	var names []string
	for _, d := range s.Resolvers {
		names = append(names, resolve.Server(d).String())
	}
	return names
}

// Refused are the networks of RefusedPrefixes.
func (s Settings) Refused() []netip.Prefix {
	var refused []netip.Prefix
	for _, p := range s.RefusedPrefixes {
		refused = append(refused, netip.Prefix(p))
	}
	return refused
}

// A refusedPrefix is a network in the settings.
type refusedPrefix netip.Prefix

func (r *refusedPrefix) UnmarshalText(text []byte) error {
	p, err := netip.ParsePrefix(strings.TrimSpace(string(text)))
	switch {
	case err != nil || p.Addr().Is4In6():
		return fmt.Errorf("%q is not a network such as 2001:db8:64::/96 or 192.0.2.0/24", text)
	case p != p.Masked():
		return fmt.Errorf("%q has bits of a host: write %v", text, p.Masked())
	case p.Bits() == 0:
		return fmt.Errorf("%q is every address: name the networks", text)
	}
	*r = refusedPrefix(p)
	return nil
}

// A DNSServer is a DNS server in the settings.
type DNSServer resolve.Server

func (s *DNSServer) UnmarshalText(text []byte) error {
	d, err := resolve.ParseServer(strings.TrimSpace(string(text)))
	if err != nil {
		return err
	}
	*s = DNSServer(d)
	return nil
}

// An Address is where the metrics are served over TCP: one address of this
// machine, since on all of them the cells could reach them, too.
type Address netip.AddrPort

func (a *Address) UnmarshalText(text []byte) error {
	t := strings.TrimSpace(string(text))
	addr, err := netip.ParseAddrPort(t)
	switch {
	case err != nil:
		return fmt.Errorf("%q is not an address with a port, such as 127.0.0.1:9180", t)
	case addr.Addr().Unmap().IsUnspecified():
		return fmt.Errorf("%q is every address of the gate, those in the cells among them: name one that no cell has", t)
	case addr.Addr().IsMulticast():
		return fmt.Errorf("%q is a multicast address", t)
	}
	*a = Address(netip.AddrPortFrom(addr.Addr().Unmap(), addr.Port()))
	return nil
}
