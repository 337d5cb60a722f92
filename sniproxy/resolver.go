package sniproxy

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/miekg/dns"

	"sallyport/firewall"
)

// The bounds of a look-up.
const (
	resolveTimeout = 5 * time.Second         // of the whole
	tryTimeout     = 1500 * time.Millisecond // of one question to one server
	rounds         = 2                       // how often each server is asked
	maxChain       = 8                       // CNAMEs from the name to its addresses
	udpSize        = 1232
	// siblingTimeout is how long an answer for one address family waits for the
	// other: servers that swallow AAAA questions are not rare.
	siblingTimeout = time.Second
)

// A DNSResolver asks recursive servers for the A and AAAA records of a fully
// qualified name, over UDP and, where an answer is cut, over TCP. It knows no
// search domains, no hosts file and no cache.
type DNSResolver struct {
	// Servers are asked in order, the next one when one fails. Required.
	Servers []netip.AddrPort
}

// SystemResolver is a resolver with the servers of a resolv.conf(5) file; all
// else in the file is ignored.
func SystemResolver(resolvConf string) (*DNSResolver, error) {
	conf, err := dns.ClientConfigFromFile(resolvConf)
	if err != nil {
		return nil, fmt.Errorf("reading the system's resolvers: %w", err)
	}
	r := &DNSResolver{}
	for _, s := range conf.Servers {
		a, err := netip.ParseAddr(s)
		if err != nil {
			return nil, fmt.Errorf("%s: nameserver %q is not an IP address", resolvConf, s)
		}
		r.Servers = append(r.Servers, netip.AddrPortFrom(a, 53))
	}
	if len(r.Servers) == 0 {
		return nil, fmt.Errorf("%s: no nameserver line", resolvConf)
	}
	return r, nil
}

// An outcome is what one question came to.
type outcome struct {
	addrs []netip.Addr
	err   error
}

// Resolve returns every address of name, IPv4 before IPv6. It takes at most 5 s.
// A name that leads through another one which is never allowed gives a
// *RefusedAnswerError. Where only one address family could be asked, its
// addresses are the answer.
func (r *DNSResolver) Resolve(ctx context.Context, name firewall.Name) ([]netip.Addr, error) {
	if name.IsZero() || len(r.Servers) == 0 {
		return nil, errors.New("resolving: no name or no server")
	}
	ctx, cancel := context.WithTimeout(ctx, resolveTimeout)
	defer cancel()
	qtypes := [2]uint16{dns.TypeA, dns.TypeAAAA}
	var results [2]outcome
	done := make(chan int, len(qtypes))
	for i, qtype := range qtypes {
		go func() {
			results[i].addrs, results[i].err = r.ask(ctx, name, qtype)
			done <- i
		}()
	}
	if first := <-done; results[first].err == nil && len(results[first].addrs) > 0 {
		defer time.AfterFunc(siblingTimeout, cancel).Stop()
	}
	<-done
	return merge(name, results)
}

// merge joins the answers of both families; a refused one refuses both.
func merge(name firewall.Name, results [2]outcome) ([]netip.Addr, error) {
	var addrs []netip.Addr
	var failed error
	for _, o := range results {
		var refused *RefusedAnswerError
		if errors.As(o.err, &refused) {
			return nil, o.err
		}
		if failed == nil {
			failed = o.err
		}
		addrs = append(addrs, o.addrs...)
	}
	switch {
	case len(addrs) > 0:
		return addrs, nil
	case failed != nil:
		return nil, fmt.Errorf("resolving %s: %w", name, failed)
	default:
		return nil, fmt.Errorf("resolving %s: it has no address", name)
	}
}

// ask puts one question to the servers until one answers it.
func (r *DNSResolver) ask(ctx context.Context, name firewall.Name, qtype uint16) ([]netip.Addr, error) {
	var failed error
	for i := range rounds * len(r.Servers) {
		server := r.Servers[i%len(r.Servers)]
		m, err := exchange(ctx, server, name, qtype)
		switch {
		case err != nil:
			failed = fmt.Errorf("asking %s: %w", server, err)
		case m.Rcode == dns.RcodeNameError:
			return nil, errors.New("no such name")
		case m.Rcode == dns.RcodeSuccess:
			return addresses(m, name, qtype)
		default:
			failed = fmt.Errorf("asking %s: %s", server, dns.RcodeToString[m.Rcode])
		}
		if ctx.Err() != nil {
			break
		}
	}
	return nil, failed
}

// exchange asks one server over UDP, and over TCP where the answer is cut.
func exchange(ctx context.Context, server netip.AddrPort, name firewall.Name, qtype uint16) (*dns.Msg, error) {
	ctx, cancel := context.WithTimeout(ctx, tryTimeout)
	defer cancel()
	q := new(dns.Msg)
	q.SetQuestion(name.String()+".", qtype)
	q.SetEdns0(udpSize, false)
	m, err := exchangeOver(ctx, "udp", server, q)
	if err == nil && m.Truncated {
		m, err = exchangeOver(ctx, "tcp", server, q)
	}
	return m, err
}

func exchangeOver(ctx context.Context, network string, server netip.AddrPort, q *dns.Msg) (*dns.Msg, error) {
	c := dns.Client{Net: network, Timeout: tryTimeout}
	conn, err := c.DialContext(ctx, server.String())
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	// The client heeds the context's deadline, not its end.
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	m, _, err := c.ExchangeWithConnContext(ctx, q, conn)
	if err != nil {
		return nil, err
	}
	if !m.Response || m.Opcode != dns.OpcodeQuery || len(m.Question) != 1 ||
		!strings.EqualFold(m.Question[0].Name, q.Question[0].Name) ||
		m.Question[0].Qtype != q.Question[0].Qtype || m.Question[0].Qclass != dns.ClassINET {
		return nil, errors.New("the answer is to another question")
	}
	return m, nil
}

// addresses collects the records of name, following CNAMEs within the answer.
// A CNAME to a name that no policy may allow refuses the answer.
func addresses(m *dns.Msg, name firewall.Name, qtype uint16) ([]netip.Addr, error) {
	owner := name.String() + "."
	for range maxChain + 1 {
		addrs, target := records(m.Answer, owner, qtype)
		if target == "" {
			return addrs, nil
		}
		if len(addrs) > 0 {
			return nil, &RefusedAnswerError{Detail: "a name with a CNAME and addresses of its own"}
		}
		if err := judgeTarget(target); err != nil {
			return nil, err
		}
		owner = target
	}
	return nil, &RefusedAnswerError{Detail: fmt.Sprintf("more than %d CNAMEs", maxChain)}
}

// records gives the addresses that an answer has for owner, and the target of
// the owner's CNAME.
func records(answer []dns.RR, owner string, qtype uint16) (addrs []netip.Addr, target string) {
	for _, rr := range answer {
		h := rr.Header()
		if h.Class != dns.ClassINET || !strings.EqualFold(h.Name, owner) {
			continue
		}
		var a netip.Addr
		switch rr := rr.(type) {
		case *dns.CNAME:
			target = rr.Target
			continue
		case *dns.A:
			a, _ = netip.AddrFromSlice(rr.A.To4())
		case *dns.AAAA:
			a, _ = netip.AddrFromSlice(rr.AAAA.To16()) // a mapped IPv4 address stays one, and is refused
		default:
			continue
		}
		if h.Rrtype == qtype {
			addrs = append(addrs, a)
		}
	}
	return addrs, target
}

// judgeTarget refuses a CNAME to a name on the floor, or to what is no host name
// on the internet. Unlike names that a sandbox asks for, a target may have
// underscores; no name on the floor has one.
func judgeTarget(target string) error {
	shown := firewall.Escape(target, maxShownHost)
	n, err := firewall.ParseName(strings.ReplaceAll(target, "_", "x"))
	if err != nil {
		return &RefusedAnswerError{Detail: fmt.Sprintf("a CNAME to %s: %v", shown, err)}
	}
	if rule, bad := n.OnFloor(); bad {
		return &RefusedAnswerError{Detail: fmt.Sprintf("a CNAME to %s, which is on the floor (%s)", shown, rule)}
	}
	return nil
}
