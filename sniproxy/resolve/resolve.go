// Package resolve finds the addresses of a host: a Client asks recursive DNS servers
// over UDP, TCP and TLS, and a Cache keeps what it was told. An answer that leads
// through a name which no policy may allow is refused; what the addresses are worth is
// for others to judge, at each use.
package resolve

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"strings"
	"sync/atomic"
	"time"

	"github.com/miekg/dns"

	"sallyport/firewall"
	"sallyport/internal/contain"
)

// maxShownName bounds, in bytes, how much of a bad name a refusal shows.
const maxShownName = 100

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

// A Client asks recursive servers for the A and AAAA records of a fully
// qualified name. It knows no search domains, no hosts file and no cache; see
// Cache.
type Client struct {
	// Servers are asked in order, the next one when one fails. Required.
	Servers []Server
	// Roots are the authorities for servers over TLS; if nil, the system's. See
	// SetRoots.
	Roots *x509.CertPool
	// Observe, if not nil, is told of each question to each server: how long it
	// took and whether it was answered.
	Observe func(server Server, took time.Duration, answered bool)

	roots atomic.Pointer[x509.CertPool] // in place of Roots; nil if not set
	idle  idlePool
}

// SetRoots puts other authorities in the place of Roots, also while the resolver
// is in use. Connections that wait for a next question are closed.
func (r *Client) SetRoots(roots *x509.CertPool) {
	r.roots.Store(roots)
	r.CloseIdle()
}

// An Answer is what a name resolved to.
type Answer struct {
	Addrs []netip.Addr // IPv4 before IPv6
	// TTL is how long the answer may be used: the least of the records that led to
	// the addresses.
	TTL time.Duration
}

// System is a resolver with the servers of a resolv.conf(5) file; all
// else in the file is ignored.
func System(resolvConf string) (*Client, error) {
	conf, err := dns.ClientConfigFromFile(resolvConf)
	if err != nil {
		return nil, fmt.Errorf("reading the system's resolvers: %w", err)
	}
	r := &Client{}
	for _, s := range conf.Servers {
		a, err := netip.ParseAddr(s)
		if err != nil {
			return nil, fmt.Errorf("%s: nameserver %q is not an IP address", resolvConf, s)
		}
		r.Servers = append(r.Servers, UDPServer(netip.AddrPortFrom(a, portDNS)))
	}
	if len(r.Servers) == 0 {
		return nil, fmt.Errorf("%s: no nameserver line", resolvConf)
	}
	return r, nil
}

// A RefusedError says that a name must not be followed to where DNS leads.
type RefusedError struct {
	Detail string // for a person; holds no unescaped input
}

func (e *RefusedError) Error() string { return "refused answer: " + e.Detail }

// An outcome is what one question came to.
type outcome struct {
	Answer
	err error
}

// Resolve is Lookup without the TTL.
func (r *Client) Resolve(ctx context.Context, name firewall.Name) ([]netip.Addr, error) {
	a, err := r.Lookup(ctx, name)
	return a.Addrs, err
}

// Lookup returns every address of name, IPv4 before IPv6. It takes at most 5 s.
// A name that leads through another one which is never allowed gives a
// *RefusedError. Where only one address family could be asked, its
// addresses are the answer.
func (r *Client) Lookup(ctx context.Context, name firewall.Name) (Answer, error) {
	if name.IsZero() || len(r.Servers) == 0 {
		return Answer{}, errors.New("resolving: no name or no server")
	}
	ctx, cancel := context.WithTimeout(ctx, resolveTimeout)
	defer cancel()
	qtypes := [2]uint16{dns.TypeA, dns.TypeAAAA}
	var results [2]outcome
	done := make(chan int, len(qtypes))
	for i, qtype := range qtypes {
		go func() {
			defer func() { done <- i }()
			defer contain.Error(&results[i].err)
			results[i].Answer, results[i].err = r.ask(ctx, name, qtype)
		}()
	}
	if first := <-done; results[first].err == nil && len(results[first].Addrs) > 0 {
		defer time.AfterFunc(siblingTimeout, cancel).Stop()
	}
	<-done
	return merge(name, results)
}

// merge joins the answers of both families; one that is refused, or over which the
// gate has failed, refuses both.
func merge(name firewall.Name, results [2]outcome) (Answer, error) {
	var joined Answer
	var failed error
	for _, o := range results {
		var refused *RefusedError
		var failure *contain.Panic
		if errors.As(o.err, &refused) || errors.As(o.err, &failure) {
			return Answer{}, o.err
		}
		if failed == nil {
			failed = o.err
		}
		if len(o.Addrs) == 0 {
			continue
		}
		if len(joined.Addrs) == 0 || o.TTL < joined.TTL {
			joined.TTL = o.TTL
		}
		joined.Addrs = append(joined.Addrs, o.Addrs...)
	}
	switch {
	case len(joined.Addrs) > 0 && failed != nil:
		joined.TTL = 0 // half of an answer: the other half may be there the next time
		return joined, nil
	case len(joined.Addrs) > 0:
		return joined, nil
	case failed != nil:
		return Answer{}, fmt.Errorf("resolving %s: %w", name, failed)
	default:
		return Answer{}, fmt.Errorf("resolving %s: it has no address", name)
	}
}

// ask puts one question to the servers until one answers it.
func (r *Client) ask(ctx context.Context, name firewall.Name, qtype uint16) (Answer, error) {
	var failed error
	for i := range rounds * len(r.Servers) {
		server := r.Servers[i%len(r.Servers)]
		start := time.Now()
		m, err := r.exchange(ctx, server, name, qtype)
		if r.Observe != nil {
			r.Observe(server, time.Since(start), err == nil)
		}
		switch {
		case err != nil:
			failed = fmt.Errorf("asking %s: %w", server, err)
		case m.Rcode == dns.RcodeNameError:
			return Answer{}, errors.New("no such name")
		case m.Rcode == dns.RcodeSuccess:
			return addresses(m, name, qtype)
		default:
			failed = fmt.Errorf("asking %s: %s", server, dns.RcodeToString[m.Rcode])
		}
		if ctx.Err() != nil {
			break
		}
	}
	return Answer{}, failed
}

// addresses collects the records of name, following CNAMEs within the answer.
// A CNAME to a name that no policy may allow refuses the answer.
func addresses(m *dns.Msg, name firewall.Name, qtype uint16) (Answer, error) {
	owner := name.String() + "."
	least := uint32(math.MaxInt32) // RFC 2181, section 8
	for range maxChain + 1 {
		found := records(m.Answer, owner, qtype)
		least = min(least, found.ttl)
		if found.target == "" {
			return Answer{Addrs: found.addrs, TTL: time.Duration(least) * time.Second}, nil
		}
		if len(found.addrs) > 0 {
			return Answer{}, &RefusedError{Detail: "a name with a CNAME and addresses of its own"}
		}
		if err := judgeTarget(found.target); err != nil {
			return Answer{}, err
		}
		owner = found.target
	}
	return Answer{}, &RefusedError{Detail: fmt.Sprintf("more than %d CNAMEs", maxChain)}
}

// An ownerRecords is what an answer has for one owner.
type ownerRecords struct {
	addrs  []netip.Addr
	target string // of its CNAME, or ""
	ttl    uint32 // the least of these, in seconds
}

func records(answer []dns.RR, owner string, qtype uint16) ownerRecords {
	found := ownerRecords{ttl: math.MaxInt32}
	for _, rr := range answer {
		h := rr.Header()
		if h.Class != dns.ClassINET || !strings.EqualFold(h.Name, owner) {
			continue
		}
		var a netip.Addr
		switch rr := rr.(type) {
		case *dns.CNAME:
			found.target = rr.Target
			found.ttl = min(found.ttl, h.Ttl)
			continue
		case *dns.A:
			a, _ = netip.AddrFromSlice(rr.A.To4())
		case *dns.AAAA:
			a, _ = netip.AddrFromSlice(rr.AAAA.To16()) // a mapped IPv4 address stays one, and is refused
		default:
			continue
		}
		if h.Rrtype == qtype {
			found.addrs = append(found.addrs, a)
			found.ttl = min(found.ttl, h.Ttl)
		}
	}
	return found
}

// judgeTarget refuses a CNAME to a name on the floor, or to what is no host name
// on the internet. Unlike names that a sandbox asks for, a target may have
// underscores; no name on the floor has one.
func judgeTarget(target string) error {
	shown := firewall.Escape(target, maxShownName)
	n, err := firewall.ParseName(strings.ReplaceAll(target, "_", "x"))
	if err != nil {
		return &RefusedError{Detail: fmt.Sprintf("a CNAME to %s: %v", shown, err)}
	}
	if rule, bad := n.OnFloor(); bad {
		return &RefusedError{Detail: fmt.Sprintf("a CNAME to %s, which is on the floor (%s)", shown, rule)}
	}
	return nil
}
