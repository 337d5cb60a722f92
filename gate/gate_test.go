package gate

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http/httptest"
	"net/netip"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"

	"sallyport/firewall"
	"sallyport/firewall/account"
	"sallyport/firewall/allowlist"
	"sallyport/gate/control"
	"sallyport/gate/listener"
	"sallyport/internal/output"
	"sallyport/sniproxy/reach"
	"sallyport/sniproxy/resolve"
)

const testAllowlist = `version: 1
groups:
  site: [{host: .site.example, ports: [80, 443], private: [10.0.0.0/8]}]
  into: [{host: cells.example, private: [127.0.0.0/8]}]
policies:
  strict: {allow: [site, into]}
  other:  {allow: [{host: other.example, ports: [80, 443], private: [10.0.0.0/8]}]}
  open:   {allow: any}
`

func parsePolicies(t testing.TB, text string) *allowlist.File {
	t.Helper()
	ps, err := allowlist.Parse(strings.NewReader(text), "allowlist.yaml")
	if err != nil {
		t.Fatal(err)
	}
	return ps
}

// A testGate is a running daemon on a socket of its own.
type testGate struct {
	*control.Client
	daemon *Daemon
	server *server // its state
	log    *output.Buffer
	stop   func() // ends it as SIGTERM does and waits
}

// The cells of the tests are in the loopback range. Two of them are enough.
func cellLease(n byte, run, policy string) control.Lease {
	return control.Lease{
		Run: run, Policy: policy,
		Address: netip.AddrFrom4([4]byte{127, 77, n, 2}),
		Prefix:  netip.PrefixFrom(netip.AddrFrom4([4]byte{127, 77, n, 0}), 28),
		Pool:    netip.MustParsePrefix("127.77.0.0/16"),
	}
}

// start runs a daemon with the allowlist of this file. All names lead to
// 10.0.0.1, cells.example into the range of the cells, and all dials to up.
func start(t testing.TB, up string, change func(*Daemon)) *testGate {
	t.Helper()
	g := &testGate{log: &output.Buffer{}}
	g.daemon = &Daemon{
		Allowlist: parsePolicies(t, testAllowlist), Resolver: testResolver(t), Version: "v0.0.0-test",
		Log: slog.New(slog.NewJSONHandler(g.log, nil)), Decisions: g.log, ports: freePorts(t),
		route: func(netip.AddrPort) netip.AddrPort { return netip.MustParseAddrPort(up) },
	}
	if change != nil {
		change(g.daemon)
	}
	path := filepath.Join(t.TempDir(), "control.sock")
	ln, err := listener.Control(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	g.Client = &control.Client{Socket: path}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	g.server = newServer(ctx, g.daemon)
	go func() { done <- g.server.run(ctx, ln) }()
	g.stop = sync.OnceFunc(func() {
		cancel()
		select {
		case err := <-done:
			if err != nil {
				t.Errorf("Serve: %v", err)
			}
		case <-time.After(20 * time.Second):
			t.Error("Serve did not return")
		}
	})
	t.Cleanup(g.stop)
	return g
}

// testResolver asks a DNS server that answers as start says.
func testResolver(t testing.TB) reach.Resolver {
	t.Helper()
	pc, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := &dns.Server{PacketConn: pc, Handler: dns.HandlerFunc(func(w dns.ResponseWriter, q *dns.Msg) {
		m := new(dns.Msg).SetReply(q)
		if q.Question[0].Qtype == dns.TypeA {
			a := &dns.A{Hdr: dns.RR_Header{Name: q.Question[0].Name, Rrtype: dns.TypeA, Class: dns.ClassINET}, A: net.IPv4(10, 0, 0, 1)}
			if strings.HasPrefix(q.Question[0].Name, "cells.") {
				a.A = net.IPv4(127, 77, 2, 3)
			}
			m.Answer = append(m.Answer, a)
		}
		_ = w.WriteMsg(m)
	})}
	go srv.ActivateAndServe()
	t.Cleanup(func() { pc.Close() })
	return &resolve.Client{Servers: []resolve.Server{resolve.UDPServer(netip.MustParseAddrPort(pc.LocalAddr().String()))}}
}

// freePorts are three ports that nobody uses at any address. They lie below those that
// the kernel gives to others (ip_local_port_range), who would take them meanwhile.
func freePorts(t testing.TB) ports {
	t.Helper()
	var p [3]uint16
	for i := 0; i < len(p); {
		port := uint16(20_000 + rand.IntN(12_000))
		ln, err := net.Listen("tcp4", netip.AddrPortFrom(netip.IPv4Unspecified(), port).String())
		if err != nil {
			continue
		}
		defer ln.Close()
		p[i] = port
		i++
	}
	return ports{dns: p[0], tls: p[1], http: p[2]}
}

// upstream is a TLS server that sends back what it gets.
func upstream(t testing.TB) string {
	t.Helper()
	src := httptest.NewTLSServer(nil) // for its certificate
	config := &tls.Config{Certificates: src.TLS.Certificates}
	src.Close()
	ln, err := tls.Listen("tcp4", "127.0.0.1:0", config)
	if err != nil {
		t.Fatal(err)
	}
	var conns sync.WaitGroup
	accepting := make(chan struct{})
	go func() {
		defer close(accepting)
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			conns.Go(func() {
				defer c.Close()
				_, _ = io.Copy(c, c)
			})
		}
	}()
	t.Cleanup(func() {
		ln.Close()
		<-accepting
		conns.Wait()
	})
	return ln.Addr().String()
}

// client dials the gate from the address .3 of cell n.
func (g *testGate) client(t *testing.T, network string, n byte, port uint16) net.Conn {
	t.Helper()
	c, err := g.dialCell(network, n, n, port)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// dialCell dials the gate's address in cell to from the address .3 of cell from.
func (g *testGate) dialCell(network string, from, to byte, port uint16) (net.Conn, error) {
	d := net.Dialer{Timeout: 5 * time.Second, LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 77, from, 3)}}
	if strings.HasPrefix(network, "udp") {
		d.LocalAddr = &net.UDPAddr{IP: net.IPv4(127, 77, from, 3)}
	}
	c, err := d.Dial(network, netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 77, to, 2}), port).String())
	if err == nil {
		err = c.SetDeadline(time.Now().Add(10 * time.Second))
	}
	return c, err
}

// resolve asks the DNS gate of cell n for the address of name.
func (g *testGate) resolve(t *testing.T, n byte, name string) *dns.Msg {
	t.Helper()
	c := &dns.Conn{Conn: g.client(t, "udp4", n, g.daemon.ports.dns)}
	if err := c.WriteMsg(new(dns.Msg).SetQuestion(name, dns.TypeA)); err != nil {
		t.Fatal(err)
	}
	m, err := c.ReadMsg()
	if err != nil {
		t.Fatalf("resolve %s in cell %d: %v", name, n, err)
	}
	return m
}

// wantResolved wants that name leads to the gate in cell n.
func (g *testGate) wantResolved(t *testing.T, n byte, name string) {
	t.Helper()
	m := g.resolve(t, n, name)
	if len(m.Answer) != 1 || m.Answer[0].(*dns.A).A.String() != net.IPv4(127, 77, n, 2).String() {
		t.Errorf("%s in cell %d: %v", name, n, m)
	}
}

func (g *testGate) wantNXDOMAIN(t *testing.T, n byte, name string) {
	t.Helper()
	if m := g.resolve(t, n, name); m.Rcode != dns.RcodeNameError || len(m.Answer) != 0 {
		t.Errorf("%s in cell %d: %v", name, n, m)
	}
}

// tunnel opens a TLS connection to host by the gate of cell n and has it echo.
func (g *testGate) tunnel(t *testing.T, n byte, host string) (*tls.Conn, error) {
	t.Helper()
	c := tls.Client(g.client(t, "tcp4", n, g.daemon.ports.tls), &tls.Config{ServerName: host, InsecureSkipVerify: true})
	return c, echo(c)
}

func echo(c net.Conn) error {
	if _, err := c.Write([]byte("ping")); err != nil {
		return err
	}
	got := make([]byte, 4)
	if _, err := io.ReadFull(c, got); err != nil {
		return err
	}
	if string(got) != "ping" {
		return errors.New("another echo")
	}
	return nil
}

func (g *testGate) lease(t *testing.T, id string, l control.Lease) control.Cell {
	t.Helper()
	c, err := g.Lease(t.Context(), id, l)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func (g *testGate) release(t *testing.T, id string) control.Cell {
	t.Helper()
	c, err := g.Release(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// wantError wants a refusal with this status and code.
func wantError(t *testing.T, err error, status int, code string) {
	t.Helper()
	var e *control.Error
	if !errors.As(err, &e) {
		t.Fatalf("error %v, want %d %s", err, status, code)
	}
	if e.Status != status || e.Code != code || e.Title == "" || e.Detail == "" {
		t.Errorf("refusal %+v, want %d %s with title and detail", e.Problem, status, code)
	}
}

// count is how often a receipt has this decision.
func count(r account.Receipt, kind account.Kind, host string, reason firewall.Reason) int64 {
	for _, h := range r.Hosts {
		if h.Kind == kind && h.Host == host && h.Reason == reason {
			return h.Count
		}
	}
	return 0
}
