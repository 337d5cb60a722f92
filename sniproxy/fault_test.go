package sniproxy

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"sallyport/firewall"
	"sallyport/internal/output"
	"sallyport/sniproxy/reach"
	"sallyport/sniproxy/refusal"
	"sallyport/sniproxy/resolve"
	"sallyport/sniproxy/testcell"
	"sallyport/sniproxy/testnet"
)

// A lookuperFunc finds addresses that must not be kept.
type lookuperFunc func(firewall.Name) (resolve.Answer, error)

func (f lookuperFunc) Lookup(_ context.Context, name firewall.Name) (resolve.Answer, error) {
	return f(name)
}

// brokenFor panics over one host, wherever it is told of it.
func brokenFor(name firewall.Name) {
	if name.String() == "other.example" {
		panic("a test")
	}
}

// A fault in any of the goroutines that reach a host ends the one connection that it
// was about: it is refused, on record and in the log, and what stands goes on.
func TestPanicsAreContained(t *testing.T) {
	far := testnet.NewCanary(t)
	dns := testnet.StartDNS(t, "site.example. 0 IN A 127.0.0.1\nother.example. 0 IN A 127.0.0.2\n")
	// exchange is a resolver that panics on its own goroutines while it reads an answer
	// for other.example.
	exchange := func(server string) *resolve.Client {
		return &resolve.Client{Servers: []resolve.Server{resolve.UDPServer(netip.MustParseAddrPort(server))},
			Observe: func(resolve.Server, time.Duration, bool) {
				if asked := dns.Questions(); len(asked) > 0 && strings.Contains(asked[len(asked)-1], "other.example.") {
					panic("a test")
				}
			}}
	}
	for what, change := range map[string]func(*Server){
		"look-up": func(s *Server) { s.Resolver = exchange(dns.Addr.String()) },
		"look-up by way of a cache": func(s *Server) {
			s.Resolver, _ = resolve.NewCache(exchange(dns.Addr.String()), 8, 0, time.Minute)
		},
		"cache": func(s *Server) {
			s.Resolver, _ = resolve.NewCache(lookuperFunc(func(name firewall.Name) (resolve.Answer, error) {
				brokenFor(name)
				return resolve.Answer{Addrs: []netip.Addr{netip.MustParseAddr("127.0.0.1")}}, nil
			}), 8, 0, time.Minute)
		},
		"dial": func(s *Server) {
			route := s.Route
			s.Route = func(addr netip.AddrPort) netip.AddrPort {
				if addr.Addr() != netip.MustParseAddr("127.0.0.1") {
					panic("a test")
				}
				return route(addr)
			}
			s.Resolver.(*testcell.Resolver).Set("other.example", "127.0.0.2")
		},
		"one of several dials": func(s *Server) {
			route := s.Route
			s.Route = func(addr netip.AddrPort) netip.AddrPort {
				if addr.Addr() != netip.MustParseAddr("127.0.0.1") {
					panic("a test")
				}
				return route(addr)
			}
			s.Resolver.(*testcell.Resolver).Set("other.example", "127.0.0.2", "127.0.0.3", "127.0.0.4")
		},
		"company's proxy": func(s *Server) {
			s.Policy = testcell.Via(t)
			s.Proxy = func(string) (reach.Proxy, bool) { panic("a test") }
		},
	} {
		t.Run(what, func(t *testing.T) {
			testnet.NoLeak(t)
			var log output.Buffer
			c := newCell(t, "strict", func(s *Server) {
				change(s)
				s.Log = slog.New(slog.NewTextHandler(&log, nil))
			})
			c.Origin("127.0.0.1:443", far.Addr)
			stands, up := c.open(far)

			client := testnet.Dial(t, c.tls)
			testnet.Send(t, client, testnet.HelloFor("other.example"))
			if got, err := io.ReadAll(client); err != nil || len(got) == 0 || refusal.Alert(got[len(got)-1]) != refusal.InternalError {
				t.Errorf("on 443 the client got %v, %v", got, err)
			}
			plain := testnet.Dial(t, c.http)
			testnet.Send(t, plain, []byte("GET / HTTP/1.1\r\nHost: other.example\r\n\r\n"))
			if got, err := io.ReadAll(plain); err != nil || !strings.HasPrefix(string(got), "HTTP/1.1 502") {
				t.Errorf("on 80 the client got %.80q, %v", got, err)
			}
			for _, r := range c.Wait(2) {
				if r.Verdict != firewall.Deny || r.Reason != firewall.ReasonFault || r.Host != "other.example" {
					t.Errorf("record %+v", r)
				}
			}
			if n := strings.Count(log.String(), "panicked"); n != 2 || !strings.Contains(log.String(), "a test") {
				t.Errorf("%d panics in the log:\n%s", n, log.String())
			}
			testnet.Send(t, stands, []byte("still"))
			testnet.ReadN(t, up, 5)
			c.open(far)
			for _, conn := range []net.Conn{client, plain} {
				conn.Close()
			}
			c.End()
		})
	}
}
