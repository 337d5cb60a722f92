package main

import (
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"sallyport/cmd/sallyport/terminal"
	"sallyport/firewall"
	"sallyport/firewall/allowlist/patch"
	"sallyport/firewall/review"
	"sallyport/gate/settings"
)

func (a *app) explainCommand() *cobra.Command {
	var policy, file string
	cmd := &cobra.Command{
		Use:   "explain HOST[:PORT] | URL [ADDRESS]...",
		Short: "Say which rule decides about a host",
		Long: `Explain decides about a host as the gate does, and names the rule that decided and
the others that bear on the host, the budgets that bind a connection to it, which line
would allow it where it is refused, and what the other policies say. Without a port it
is 443. With addresses, it says too whether the gate would dial them if the host's name
led there. Where the gate's settings stand in the environment, as they do for "make up",
it tells the proxy of an entry and the DNS servers that would be asked, and refuses
the networks that they refuse. The exit code is
4 where the host or one of the addresses is refused.`,
		Example: "  sallyport explain api.github.com --policy strict\n  sallyport explain git.corp.example:443 10.20.0.5 --policy strict",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usage("HOST is missing")
			}
			return nil
		},
		RunE: func(_ *cobra.Command, args []string) error {
			return a.explain(a.allowlist(file), policy, args[0], args[1:])
		},
	}
	cmd.Flags().StringVarP(&policy, "policy", "p", "strict", "name of the policy")
	cmd.Flags().StringVarP(&file, "file", "f", "", "the allowlist")
	return cmd
}

// errRefused is the end of an explanation whose answer is no.
var errRefused = &exitError{code: exitRefused}

func (a *app) explain(path, policyName, target string, addresses []string) error {
	addrs, err := parseAddrs(addresses)
	if err != nil {
		return err
	}
	host, port, err := splitTarget(target)
	if err != nil {
		return err
	}
	route, err := a.route()
	if err != nil {
		return err
	}
	file, src, err := a.read(path)
	if err != nil {
		return err
	}
	policies := file.Policies.Refuse(route.refused)
	policy, ok := policies.Policy(policyName)
	if !ok {
		return usage("%s has no policy %q; it has %s", path, policyName, strings.Join(policies.Names(), ", "))
	}
	name, err := firewall.ParseName(host)
	if err != nil {
		a.print("%s:%d is refused under every policy (%s): %v\n", firewall.Escape(host, 253), port, firewall.ReasonBadName, err)
		if addr, err := netip.ParseAddr(host); err == nil {
			a.explainAddrs("a name that leads there", policies.JudgeAddr, []netip.Addr{addr})
		}
		return errRefused
	}
	if name.String() == firewall.PageHost && port == 80 {
		a.print("%s:80 is served by the gate itself under every policy (%s)\n", name, firewall.ReasonPolicyPage)
		return nil
	}
	d := policy.Decide(name, port)
	verdict := "refused"
	if d.Allowed() {
		verdict = "allowed"
	}
	a.print("%s:%d is %s under %s (%s)\n", name, port, verdict, policyName, d.Reason)
	for _, m := range policy.Explain(name, port) {
		a.explainMatch(path, m)
	}
	dialled := true
	if d.Allowed() {
		a.explainRoute(route, d)
		limits := policy.Budget()
		_, wildcard := d.Below(name)
		if binding := limits.Binding(wildcard); len(binding) > 0 {
			a.print("  budgets  %s\n", strings.Join(binding, ", "))
		}
		dialled = a.explainAddrs(name.String(), d.JudgeAddr, addrs)
	} else {
		a.explainAddrs("an allowed name", policies.JudgeAddr, addrs)
		if err := a.explainRemedy(path, src, policy, patch.Host{Name: name, Ports: []uint16{port}}); err != nil {
			return err
		}
	}
	a.explainOthers(policies, policyName, name, port)
	if !d.Allowed() || !dialled {
		return errRefused
	}
	return nil
}

// explainRoute prints by way of which proxy a host is reached, and which servers
// are asked for its addresses, as far as this is known here.
func (a *app) explainRoute(r route, d firewall.Decision) {
	if addr, ok := r.proxies[d.Via]; ok {
		a.print("  proxy    %s is %s\n", d.Via, addr)
	} else if d.Via != "" {
		a.print("  proxy    %s is not known here: it must be in the gate's %s\n", d.Via, proxiesVariable)
	}
	if len(r.resolvers) > 0 {
		a.print("  asks     %s\n", strings.Join(r.resolvers, ", "))
	}
}

// explainRemedy prints which line would allow a host that is refused, where it
// belongs, and what speaks against it; or why none would.
func (a *app) explainRemedy(path string, src []byte, policy *firewall.Policy, h patch.Host) error {
	if !slices.Contains(h.Ports, 80) && !slices.Contains(h.Ports, firewall.DefaultPort) {
		a.print("  remedy   none: the gate serves ports 80 and 443 only\n")
		return nil
	}
	p, err := patch.Allow(src, path, policy.Name(), []patch.Host{h})
	if err != nil {
		return fmt.Errorf("find what would allow it: %w", err)
	}
	for _, left := range p.Left {
		a.print("  remedy   none: it %s\n", left.Why)
	}
	for _, added := range p.Added {
		a.print("  remedy   in %s: - %s\n", added.Place, added.Entry)
		for _, risk := range review.RisksUnder(policy, added.Host.Name, added.Host.Ports) {
			a.print("  RISK     %s\n", risk)
		}
	}
	return nil
}

// explainOthers prints what the other policies say of the host.
func (a *app) explainOthers(policies *firewall.Policies, except string, name firewall.Name, port uint16) {
	var says []string
	for _, other := range policies.Names() {
		if policy, _ := policies.Policy(other); other != except {
			d := policy.Decide(name, port)
			says = append(says, fmt.Sprintf("%s %s (%s)", other, map[bool]string{true: "allows it", false: "refuses it"}[d.Allowed()], d.Reason))
		}
	}
	if len(says) > 0 {
		a.print("  others   %s\n", strings.Join(says, ", "))
	}
}

func (a *app) print(format string, args ...any) {
	fmt.Fprint(a.stdout, terminal.Safe(fmt.Sprintf(format, args...)))
}

// explainMatch prints one rule: where it stands, what it says.
func (a *app) explainMatch(path string, m firewall.Match) {
	word := "also"
	if m.Decides {
		word = "decides"
	}
	where := "built in"
	if m.Line > 0 {
		where = fmt.Sprintf("%s:%d", path, m.Line)
	}
	var parts []string
	if m.Rule != "" {
		parts = append(parts, m.Rule)
	}
	if m.Group != "" {
		parts = append(parts, "group "+m.Group)
	}
	if len(m.Ports) > 0 {
		parts = append(parts, "ports "+terminal.List(m.Ports))
	}
	if len(m.Private) > 0 {
		parts = append(parts, "private "+terminal.List(m.Private))
	}
	if m.Via != "" {
		parts = append(parts, "via "+m.Via)
	}
	says := string(m.Reason)
	if m.Detail != "" {
		says += ", " + m.Detail
	}
	a.print("  %-7s  %s: %s (%s)\n", word, where, strings.Join(parts, ", "), says)
}

// explainAddrs prints whether each address may be dialled for who, and reports
// whether all may.
func (a *app) explainAddrs(who string, judge func(netip.Addr) (bool, string), addrs []netip.Addr) bool {
	all := true
	for _, addr := range addrs {
		if ok, detail := judge(addr); ok {
			a.print("  address  %s may be dialled for %s\n", addr, who)
		} else {
			a.print("  address  refused: %s\n", detail)
			all = false
		}
	}
	return all
}

func parseAddrs(args []string) (addrs []netip.Addr, err error) {
	for _, arg := range args {
		addr, err := netip.ParseAddr(arg)
		if err != nil {
			return nil, usage("%q is not an IP address", arg)
		}
		addrs = append(addrs, addr)
	}
	return addrs, nil
}

// schemePorts are the ports of URLs that name none.
var schemePorts = map[string]uint16{"https": firewall.DefaultPort, "wss": firewall.DefaultPort, "http": 80, "ws": 80}

// splitTarget splits HOST[:PORT] or takes both from a URL; an IPv6 address may
// stand by itself.
func splitTarget(s string) (host string, port uint16, err error) {
	if strings.Contains(s, "://") {
		u, err := url.Parse(s)
		if err != nil || u.Host == "" || schemePorts[u.Scheme] == 0 {
			return "", 0, usage("%q is not the URL of a host that the gate could reach: write HOST[:PORT]", s)
		}
		if u.Port() == "" {
			return u.Hostname(), schemePorts[u.Scheme], nil
		}
		s = u.Host
	}
	if _, err := netip.ParseAddr(s); err == nil || !strings.Contains(s, ":") {
		return s, firewall.DefaultPort, nil
	}
	host, p, err := net.SplitHostPort(s)
	if err != nil {
		return "", 0, usage("%q is not HOST[:PORT]", s)
	}
	n, err := strconv.ParseUint(p, 10, 16)
	if err != nil || n == 0 {
		return "", 0, usage("%q is not a port: write a number from 1 to 65535", p)
	}
	return host, uint16(n), nil
}

// proxiesVariable is the setting of the gate that names its proxies.
const proxiesVariable = "SALLYPORT_PROXIES"

// A route is what the environment here says of how the gate gets out. The stack
// takes the gate's settings from the environment of "make up", so for whoever
// starts it there they are the gate's; elsewhere there are none.
type route struct {
	resolvers []string
	proxies   map[string]netip.AddrPort
	refused   []netip.Prefix
}

// route reads the gate's settings. Where they are wrong the gate would not start.
func (a *app) route() (route, error) {
	set, err := settings.Parse(os.Environ())
	if err != nil {
		return route{}, &exitError{code: exitFailed, err: err}
	}
	proxies, err := set.ProxyAddrs()
	if err != nil {
		return route{}, &exitError{code: exitFailed, err: err}
	}
	return route{set.ResolverNames(), proxies, set.Refused()}, nil
}
