package sniproxy

import (
	"bufio"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"sallyport/firewall"
	"sallyport/firewall/account"
	"sallyport/firewall/allowlist"
	"sallyport/internal/output"
	"sallyport/sniproxy/reach"
	"sallyport/sniproxy/refusal"
	"sallyport/sniproxy/resolve"
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
			s.Resolver.(*fakeResolver).set("other.example", "127.0.0.2")
		},
		"one of several dials": func(s *Server) {
			route := s.Route
			s.Route = func(addr netip.AddrPort) netip.AddrPort {
				if addr.Addr() != netip.MustParseAddr("127.0.0.1") {
					panic("a test")
				}
				return route(addr)
			}
			s.Resolver.(*fakeResolver).set("other.example", "127.0.0.2", "127.0.0.3", "127.0.0.4")
		},
		"company's proxy": func(s *Server) {
			s.Policy = viaPolicy(t)
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
			c.origin("127.0.0.1:443", far.Addr)
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
			for _, r := range c.wait(2) {
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
			c.end()
		})
	}
}

// viaPolicy reaches other.example by way of a proxy, and site.example as it is.
func viaPolicy(t *testing.T) *firewall.Policy {
	t.Helper()
	all, err := allowlist.Parse(strings.NewReader("version: 1\npolicies:\n  p:\n    allow:\n"+
		"      - {host: site.example, ports: [80, 443], private: [127.0.0.0/8]}\n"+
		"      - {host: other.example, ports: [80, 443], private: [127.0.0.0/8], via: corp}\n"), "allowlist.yaml")
	if err != nil {
		t.Fatal(err)
	}
	p, _ := all.Policy("p")
	return p
}

// A body the sending of which has failed ends its exchange: neither side takes the
// part for the whole, and the record says whose fault it was.
func TestSenderPanic(t *testing.T) {
	testnet.NoLeak(t)
	c := newCell(t, "strict", nil)
	far := testnet.NewCanary(t)
	client, up := testnet.Dial(t, far.Addr), testnet.Dial(t, far.Addr)
	far.Next(t)
	upstreamEnd := far.Next(t)
	h := &httpConn{v: &service{Server: c.server, kind: account.KindHTTP}, client: client,
		br: bufio.NewReader(brokenReader{}), in: newHeadBuffer(c.server)}
	meter, _ := c.server.meter().Reach(testnet.ParseName(t, "site.example"), c.server.Policy.Decide(testnet.ParseName(t, "site.example"), portHTTP))
	h.up = newUpstream(c.server, &flow{up: up, meter: meter})
	more, r, again := h.exchange(&request{method: http.MethodPost, length: 10, framed: true}, false)
	if more || again || r == nil || r.Reason != firewall.ReasonFault {
		t.Errorf("more %v, again %v, %+v", more, again, r)
	}
	if _, err := upstreamEnd.Read(make([]byte, 1)); err == nil || errors.Is(err, io.EOF) {
		t.Errorf("the upstream sees %v, want a cut", err)
	}
	client.Close()
}

// A brokenReader panics.
type brokenReader struct{}

func (brokenReader) Read([]byte) (int, error) { panic("a test") }

// A panic anywhere in the handling of a request leaves its record, one, and nothing
// of it behind.
func TestRequestPanic(t *testing.T) {
	testnet.NoLeak(t)
	calls := 0
	c := newCell(t, "strict", func(s *Server) {
		p := s.Policy
		s.Current = func() *firewall.Policy {
			if calls++; calls == 3 { // a change of policy is looked for once the host is reached
				panic("a test")
			}
			return p
		}
	})
	k := testnet.NewCanary(t)
	c.origin("127.0.0.1:80", k.Addr)
	client := testnet.Dial(t, c.http)
	testnet.Send(t, client, []byte("GET / HTTP/1.1\r\nHost: site.example\r\n\r\n"))
	_, _ = io.ReadAll(client)
	if r := c.last(1); r.Verdict != firewall.Deny || r.Reason != firewall.ReasonFault || r.Host != "site.example" {
		t.Errorf("record %+v", r)
	}
	testnet.Eventually(t, "the connection to be counted out", func() bool { return c.server.Open() == 0 })
	c.end()
	if c.server.flows.first != nil {
		t.Error("an exchange is left behind")
	}
}
