package sniproxy

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"sallyport/firewall"
	"sallyport/firewall/allowlist"
	"sallyport/sniproxy/reach"
	"sallyport/sniproxy/testnet"
)

// A connectProxy is an HTTP proxy that leads every tunnel to one address.
type connectProxy struct {
	addr   netip.AddrPort
	answer string // sent instead of a tunnel, if not ""

	mu    sync.Mutex // guards asked
	asked []string   // "target authorization"
}

func startProxy(t *testing.T, to, answer string) *connectProxy {
	t.Helper()
	p := &connectProxy{answer: answer}
	ln := testnet.Listen(t)
	p.addr = netip.MustParseAddrPort(ln.Addr().String())
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			wg.Go(func() { p.serve(c, to) })
		}
	})
	t.Cleanup(func() {
		ln.Close()
		wg.Wait()
	})
	return p
}

func (p *connectProxy) serve(c net.Conn, to string) {
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(testnet.Patience))
	br := bufio.NewReader(c)
	req, err := http.ReadRequest(br)
	if err != nil {
		return
	}
	p.mu.Lock()
	p.asked = append(p.asked, fmt.Sprint(req.Method, " ", req.Host, " ", req.Header.Get("Proxy-Authorization")))
	p.mu.Unlock()
	if p.answer != "" {
		_, _ = io.WriteString(c, p.answer)
		return
	}
	up, err := net.Dial("tcp", to)
	if err != nil {
		return
	}
	defer up.Close()
	_, _ = io.WriteString(c, "HTTP/1.1 200 Connection established\r\nVia: test\r\n\r\n")
	go func() { _, _ = io.Copy(up, br); _ = up.(*net.TCPConn).CloseWrite() }()
	_, _ = io.Copy(c, up)
}

func (p *connectProxy) Questions() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return strings.Join(p.asked, ", ")
}

const viaAllowlist = `
version: 1
policies:
  p:
    allow:
      - {host: .far.example, ports: [80, 443], via: corp}
      - {host: direct.far.example, ports: [80, 443], private: [127.0.0.0/8]}
      - {host: lost.example, via: other}
`

// viaCell is a cell whose policy sends hosts by way of a proxy that leads to k.
func viaCell(t *testing.T, p reach.Proxy) *cell {
	t.Helper()
	ps, err := allowlist.Parse(strings.NewReader(viaAllowlist), "test")
	if err != nil {
		t.Fatal(err)
	}
	policy, _ := ps.Policy("p")
	c := newCell(t, "strict", func(s *Server) {
		s.Policy = policy
		s.Proxy = func(name string) (reach.Proxy, bool) { return p, name == "corp" }
	})
	c.Origin(p.Addr.String(), p.Addr.String())
	c.Resolver.Set("www.far.example", "1.1.1.1", "1.1.1.2")
	c.Resolver.Set("inside.far.example", "1.1.1.1", "10.0.0.1")
	c.Resolver.Set("direct.far.example", "127.0.0.1")
	c.Resolver.Set("lost.example", "1.1.1.1")
	return c
}

// An entry with via is reached by way of its proxy, asked for the name or for
// the judged address, with credentials; every other one is dialled.
func TestVia(t *testing.T) {
	for _, byAddress := range []bool{false, true} {
		k := testnet.NewCanary(t)
		p := startProxy(t, k.Addr, "")
		c := viaCell(t, reach.Proxy{Addr: p.addr, Credentials: "user:pass", ByAddress: byAddress})
		c.Origin("127.0.0.1:443", k.Addr)

		client := testnet.Dial(t, c.tls)
		hello := testnet.Record(testnet.Message(testnet.SNI("www.far.example")))
		testnet.Send(t, client, hello)
		up := k.Next(t)
		got := make([]byte, len(hello))
		if _, err := io.ReadFull(up, got); err != nil || string(got) != string(hello) {
			t.Errorf("the far side got %x, %v", got, err)
		}
		_, _ = io.WriteString(up, "answer")
		up.Close()
		if answer, _ := io.ReadAll(client); string(answer) != "answer" {
			t.Errorf("the client got %q", answer)
		}
		client.Close()
		r := c.Last(1)
		if r.Reason != firewall.ReasonListed || r.Upstream != p.addr || r.BytesUp != int64(len(hello)) || r.BytesDown != 6 {
			t.Errorf("record %+v", r)
		}
		want := "CONNECT www.far.example:443 Basic dXNlcjpwYXNz"
		if byAddress {
			want = "CONNECT 1.1.1.1:443 Basic dXNlcjpwYXNz"
		}
		if got := p.Questions(); got != want {
			t.Errorf("the proxy was asked %q, want %q", got, want)
		}

		testnet.Send(t, testnet.Dial(t, c.tls), testnet.Record(testnet.Message(testnet.SNI("direct.far.example"))))
		k.Next(t).Close()
		if got := p.Questions(); got != want {
			t.Errorf("the proxy was asked %q for a host without via", got)
		}
	}
}

// TestViaOnPort80 has requests on one connection go by way of a proxy and directly, as
// each one's host does.
func TestViaOnPort80(t *testing.T) {
	far, near := namedOrigin(t, "far"), namedOrigin(t, "near")
	p := startProxy(t, far, "")
	c := viaCell(t, reach.Proxy{Addr: p.addr})
	c.Origin("127.0.0.1:80", near)
	client := testnet.Dial(t, c.http)
	br := bufio.NewReader(client)
	for _, step := range []struct{ host, want string }{{"www.far.example", "far"}, {"direct.far.example", "near"}, {"www.far.example", "far"}} {
		testnet.Send(t, client, []byte("GET /"+step.want+" HTTP/1.1\r\nHost: "+step.host+"\r\n\r\n"))
		resp, err := http.ReadResponse(br, nil)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		if err != nil || string(body) != step.want+" "+step.host+" /"+step.want {
			t.Errorf("%s: %d %q, %v", step.host, resp.StatusCode, body, err)
		}
	}
	client.Close()
	const tunnel = "CONNECT www.far.example:80 "
	if got := p.Questions(); got != tunnel && got != tunnel+", "+tunnel {
		t.Errorf("the proxy was asked %q", got)
	}
	for _, r := range c.Wait(3) {
		if want := r.Host == "www.far.example"; r.Verdict != firewall.Allow || (r.Upstream == p.addr) != want {
			t.Errorf("record %+v", r)
		}
	}
}

// namedOrigin is a server that says its name, the host and the path.
func namedOrigin(t *testing.T, name string) string {
	t.Helper()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, name+" "+r.Host+" "+r.URL.Path)
	}))
	t.Cleanup(srv.Close)
	return srv.Listener.Addr().String()
}

// What the proxy or the judge refuses is refused, and nothing is dialled
// directly instead.
func TestViaRefused(t *testing.T) {
	tests := []struct {
		name, host, answer string
		reason             firewall.Reason
		detail             string
		asked              bool
	}{
		{"by the proxy", "www.far.example", "HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n", firewall.ReasonDial, "403 Forbidden", true},
		{"wants credentials", "www.far.example", "HTTP/1.1 407 Who\r\n\r\n", firewall.ReasonDial, "407", true},
		{"hangs up", "www.far.example", "HTTP/1.1 200 OK\r\n", firewall.ReasonDial, "EOF", true},
		{"endless", "www.far.example", "HTTP/1.1 200 " + strings.Repeat("x", 2*reach.MaxConnectHead), firewall.ReasonDial, "too long", true},
		{"no HTTP", "www.far.example", "SSH-2.0-x\r\n\r\n", firewall.ReasonDial, "not an answer", true},
		{"a private address", "inside.far.example", "", firewall.ReasonAddress, "10.0.0.1", false},
		{"no such proxy", "lost.example", "", firewall.ReasonDial, "no proxy called other", false},
		{"unresolved", "absent.far.example", "", firewall.ReasonResolve, "", false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := startProxy(t, "127.0.0.1:1", tt.answer)
			c := viaCell(t, reach.Proxy{Addr: p.addr})
			client := testnet.Dial(t, c.tls)
			testnet.Send(t, client, testnet.Record(testnet.Message(testnet.SNI(tt.host))))
			if got, _ := io.ReadAll(client); len(got) != 7 {
				t.Errorf("the client got %x, want an alert", got)
			}
			r := c.Last(1)
			if r.Verdict != firewall.Deny || r.Reason != tt.reason || !strings.Contains(r.Detail, tt.detail) {
				t.Errorf("record %+v", r)
			}
			for _, d := range c.Dials() {
				if d != p.addr {
					t.Errorf("dialled %v", d)
				}
			}
			if asked := p.Questions() != ""; asked != tt.asked {
				t.Errorf("asked the proxy: %t", asked)
			}
		})
	}
}
