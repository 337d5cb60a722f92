package main

import (
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"

	"sallyport/firewall"
	"sallyport/gate/settings"
)

// proxiesVariable is the setting of the gate that names its proxies.
const proxiesVariable = "SALLYPORT_PROXIES"

// A wayOut is what the environment here says of how the gate gets out. The stack
// takes the gate's settings from the environment of "make up", so for whoever
// starts it there they are the gate's; elsewhere there are none.
type wayOut struct {
	resolvers []string
	proxies   map[string]netip.AddrPort
	refused   []netip.Prefix
}

// wayOut reads the gate's settings. Where they are wrong the gate would not start.
func (a *app) wayOut() (wayOut, error) {
	set, err := settings.Parse(os.Environ())
	if err != nil {
		return wayOut{}, &exitError{code: exitFailed, err: err}
	}
	proxies, err := set.ProxyAddrs()
	if err != nil {
		return wayOut{}, &exitError{code: exitFailed, err: err}
	}
	return wayOut{set.ResolverNames(), proxies, set.Refused()}, nil
}

// missingProxies are the proxies that entries of an allowlist name, where none are
// set here; where some are set, it is an error if one is missing among them.
func (a *app) missingProxies(path string, policies *firewall.Policies) ([]string, error) {
	way, err := a.wayOut()
	if err != nil {
		return nil, err
	}
	missing := slices.DeleteFunc(policies.Vias(), func(via string) bool { return way.proxies[via].IsValid() })
	if len(missing) == 0 || len(way.proxies) == 0 {
		return missing, nil
	}
	fmt.Fprintf(a.stderr, "%s: via: %s has no proxy of the name %s, so the gate would refuse the file\n", safe(path), proxiesVariable, strings.Join(missing, ", "))
	return nil, &exitError{code: exitFailed}
}
