package sniproxy

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"

	"sallyport/firewall"
	"sallyport/firewall/allowlist"
	"sallyport/sniproxy/refusal"
	"sallyport/sniproxy/testcell"
	"sallyport/sniproxy/testnet"
)

// changing makes a cell whose policy the test exchanges.
func changing(t *testing.T, change func(*Server)) (c *cell, set func(*firewall.Policy)) {
	t.Helper()
	var current atomic.Pointer[firewall.Policy]
	current.Store(testcell.Policy(t, "hidden"))
	c = newCell(t, "strict", func(s *Server) {
		s.Current = current.Load
		if change != nil {
			change(s)
		}
	})
	return c, func(p *firewall.Policy) {
		current.Store(p)
		c.server.PolicyChanged()
	}
}

// What a change of policy does to a tunnel, by what the new policy says.
func TestPolicyChanged(t *testing.T) {
	parse := func(text string) *firewall.Policy {
		t.Helper()
		ps, err := allowlist.Parse(strings.NewReader("version: 1\npolicies: {p: {"+text+"}}\n"), "allowlist.yaml")
		if err != nil {
			t.Fatal(err)
		}
		p, _ := ps.Policy("p")
		return p
	}
	for _, test := range []struct {
		name string
		to   *firewall.Policy
		cut  string // in the detail; "" lets it go on
	}{
		{"the same", testcell.Policy(t, "hidden"), ""},
		{"another entry that allows it", parse("allow: [{host: www.site.example, private: [127.0.0.0/8]}], ech: pass"), ""},
		{"the host is gone", parse("allow: [{host: other.example, private: [127.0.0.0/8]}], ech: pass"), "not_listed"},
		{"its port is gone", parse("allow: [{host: www.site.example, ports: [80], private: [127.0.0.0/8]}], ech: pass"), "port_not_listed"},
		{"its address is no longer admitted", parse("allow: [www.site.example], ech: pass"), "address_refused"},
		{"it is to be reached by way of a proxy", parse("allow: [{host: www.site.example, private: [127.0.0.0/8], via: corp}], ech: pass"), "via"},
		{"the policy is gone", nil, "not_listed"},
	} {
		t.Run(test.name, func(t *testing.T) {
			testnet.NoLeak(t)
			c, set := changing(t, nil)
			c.Resolver.Set("www.site.example", "127.0.0.1")
			far := testnet.NewCanary(t)
			c.Origin("127.0.0.1:443", far.Addr)
			hello := testnet.GoHello(t, "www.site.example")
			client := testnet.Dial(t, c.tls)
			testnet.Send(t, client, hello)
			up := far.Next(t)
			testnet.ReadN(t, up, len(hello))

			set(test.to)
			if test.cut == "" {
				testnet.Send(t, client, []byte("more"))
				testnet.ReadN(t, up, 4)
				client.Close()
				up.Close()
				if r := c.Last(1); r.Verdict != firewall.Allow {
					t.Errorf("record %+v", r)
				}
				return
			}
			testnet.WantCut(t, client)
			testnet.WantCut(t, up)
			r := c.Last(1)
			if r.Verdict != firewall.Deny || r.Reason != firewall.ReasonPolicyChanged || !strings.Contains(r.Detail, test.cut) ||
				r.BytesUp != int64(len(hello)) || r.Upstream != netip.MustParseAddrPort("127.0.0.1:443") {
				t.Errorf("record %+v", r)
			}
		})
	}
}

// A policy that is closed cuts nothing, whatever is reloaded meanwhile: not what
// stands, and not what has its verdict and is being resolved. It refuses what is new
// for its own reason.
func TestClosedPolicyCutsNothing(t *testing.T) {
	resolving, resume := make(chan struct{}, 1), make(chan struct{})
	c, set := changing(t, func(s *Server) {
		s.Resolver = resolverFunc(func(context.Context) ([]netip.Addr, error) {
			resolving <- struct{}{}
			<-resume
			return []netip.Addr{netip.MustParseAddr("127.0.0.1")}, nil
		})
	})
	far := testnet.NewCanary(t)
	c.Origin("127.0.0.1:443", far.Addr)
	hello := testnet.GoHello(t, "site.example")
	client := testnet.Dial(t, c.tls)
	testnet.Send(t, client, hello)
	<-resolving
	closed := testcell.Policy(t, "hidden").Closed(firewall.ReasonLog, "no log")
	set(closed)
	close(resume)
	up := far.Next(t)
	testnet.ReadN(t, up, len(hello))
	set(testcell.Policy(t, "hidden").Closed(firewall.ReasonLog, "no log"))
	testnet.Send(t, client, []byte("more"))
	testnet.ReadN(t, up, 4)

	refused := testnet.Dial(t, c.tls)
	testnet.Send(t, refused, hello)
	if got, err := io.ReadAll(refused); err != nil || string(got) != string(refusal.AccessDenied.Record()) {
		t.Errorf("the refused client got %x, %v", got, err)
	}
	if r := c.Last(1); r.Reason != firewall.ReasonLog || r.Detail != "no log" || r.Digest != closed.Digest() {
		t.Errorf("record %+v", r)
	}
	set((*firewall.Policy)(nil).Closed(firewall.ReasonLog, "no log")) // it is gone as well
	testnet.WantCut(t, client)
	testnet.WantCut(t, up)
	if r := c.Last(2); r.Reason != firewall.ReasonPolicyChanged || r.Digest != closed.Digest() {
		t.Errorf("record %+v", r)
	}
}

// A connection that is being resolved while the policy changes is judged again
// before a byte of it leaves.
func TestPolicyChangedMeanwhile(t *testing.T) {
	resolving, resume := make(chan struct{}), make(chan struct{})
	c, set := changing(t, func(s *Server) {
		s.Resolver = resolverFunc(func(context.Context) ([]netip.Addr, error) {
			close(resolving)
			<-resume
			return []netip.Addr{netip.MustParseAddr("127.0.0.1")}, nil
		})
	})
	far := testnet.NewCanary(t)
	c.Origin("127.0.0.1:443", far.Addr)
	client := testnet.Dial(t, c.tls)
	testnet.Send(t, client, testnet.GoHello(t, "site.example"))
	<-resolving
	set(nil)
	close(resume)
	testnet.WantCut(t, client)
	testnet.WantCut(t, far.Next(t))
	if r := c.Last(1); r.Reason != firewall.ReasonPolicyChanged || r.BytesUp != 0 {
		t.Errorf("record %+v", r)
	}
}

// After a change, a request on a connection that is open is judged by the new
// policy, and one that is still allowed gets a connection that was judged by it.
func TestPolicyChangedBetweenRequests(t *testing.T) {
	c, set := changing(t, nil)
	far := testnet.NewCanary(t)
	c.Origin("127.0.0.1:80", far.Addr)
	client := testnet.Dial(t, c.http)
	br := bufio.NewReader(client)
	serve := func() {
		t.Helper()
		up := far.Next(t)
		if _, err := http.ReadRequest(bufio.NewReader(up)); err != nil {
			t.Fatal(err)
		}
		testnet.Send(t, up, []byte("HTTP/1.1 204 No Content\r\n\r\n"))
	}
	get := func(host string, want int) {
		t.Helper()
		resp, err := http.ReadResponse(br, nil)
		if err != nil || resp.StatusCode != want {
			t.Fatalf("%s: %v, %v; want %d", host, resp, err, want)
		}
	}
	ask := []byte("GET / HTTP/1.1\r\nHost: site.example\r\n\r\n")
	testnet.Send(t, client, ask)
	serve()
	get("site.example", 204)
	c.Wait(1) // the first exchange has ended
	set(testcell.Policy(t, "strict"))
	testnet.Send(t, client, ask)
	serve() // over a connection of its own
	get("site.example", 204)
	c.Wait(2)
	set(nil)
	testnet.Send(t, client, ask)
	get("site.example", 403)
	c.Wait(3)
	if n := far.Count.Load(); n != 2 {
		t.Errorf("%d connections upstream, want 2", n)
	}
}
