package resolve

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"math/big"
	"net"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/miekg/dns"

	"sallyport/sniproxy/testnet"
)

// A dotServer is a DNS server over TLS that counts connections.
type dotServer struct {
	*testnet.DNSServer
	Addr  netip.AddrPort
	conns atomic.Int32
	short atomic.Int32 // questions whose length was no multiple of 128
	ends  atomic.Bool  // hang up after each answer
	roots *x509.CertPool

	lost sync.Map // addresses of clients whose connections have gone silent
}

// certificate makes one for names, which is its own authority.
func certificate(t *testing.T, names ...string) (tls.Certificate, *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true}
	for _, n := range names {
		if ip := net.ParseIP(n); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, n)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(cert)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, roots
}

type countingListener struct {
	net.Listener
	n *atomic.Int32
}

func (l countingListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err == nil {
		l.n.Add(1)
	}
	return c, err
}

func startDoT(t *testing.T, names ...string) *dotServer {
	t.Helper()
	s := &dotServer{DNSServer: testnet.StartDNS(t, testZone)}
	var cert tls.Certificate
	cert, s.roots = certificate(t, names...)
	ln := testnet.Listen(t)
	s.Addr = netip.MustParseAddrPort(ln.Addr().String())
	started := make(chan struct{})
	server := &dns.Server{
		Listener: tls.NewListener(countingListener{ln, &s.conns}, &tls.Config{Certificates: []tls.Certificate{cert}}),
		Handler: dns.HandlerFunc(func(w dns.ResponseWriter, q *dns.Msg) {
			if _, lost := s.lost.Load(w.RemoteAddr().String()); lost {
				return
			}
			if q.Len()%128 != 0 {
				s.short.Add(1)
			}
			s.Answer(w, q)
			if s.ends.Load() {
				w.Close()
			}
		}),
		NotifyStartedFunc: func() { close(started) },
	}
	go func() { _ = server.ActivateAndServe() }()
	<-started
	t.Cleanup(func() { _ = server.Shutdown() })
	return s
}

// Questions go over TLS, padded, over connections that are used again; one that
// the server has closed is replaced.
func TestResolveOverTLS(t *testing.T) {
	s := startDoT(t, "dns.example")
	r := &Client{Servers: []Server{{OverTLS, s.Addr, "dns.example"}}, Roots: s.roots}
	t.Cleanup(r.CloseIdle)
	look := func() {
		t.Helper()
		addrs, err := r.Resolve(t.Context(), testnet.ParseName(t, "both.example"))
		if got := fmt.Sprint(addrs); err != nil || got != "[192.0.2.1 192.0.2.2 2001:db8::1]" {
			t.Fatalf("%s, %v", got, err)
		}
	}
	for range 20 {
		look()
	}
	if n := s.conns.Load(); n > 2 {
		t.Errorf("%d connections for 20 look-ups", n)
	}
	s.ends.Store(true)
	for range 3 {
		look()
	}
	if n := s.short.Load(); n != 0 {
		t.Errorf("%d questions were not padded", n)
	}
	for _, q := range s.Questions() {
		if !strings.HasPrefix(q, "tcp ") {
			t.Errorf("asked %q", q)
		}
	}
}

// TestResolveOverSilentTLS has all connections that wait for a next question lose
// their way, as after a change of the network: the look-up takes a new one.
func TestResolveOverSilentTLS(t *testing.T) {
	s := startDoT(t, "dns.example")
	r := &Client{Servers: []Server{{OverTLS, s.Addr, "dns.example"}}, Roots: s.roots}
	t.Cleanup(r.CloseIdle)
	var group sync.WaitGroup
	for range idleConns {
		group.Go(func() { _, _ = r.Resolve(t.Context(), testnet.ParseName(t, "both.example")) })
	}
	group.Wait()
	r.idle.mu.Lock()
	waiting := r.idle.conns[r.Servers[0]]
	for _, c := range waiting {
		s.lost.Store(c.LocalAddr().String(), true)
	}
	r.idle.mu.Unlock()
	if len(waiting) < 3 {
		t.Fatalf("%d connections wait, want some", len(waiting))
	}
	before := s.conns.Load()
	addrs, err := r.Resolve(t.Context(), testnet.ParseName(t, "both.example"))
	if err != nil || len(addrs) != 3 {
		t.Errorf("%v, %v", addrs, err)
	}
	if n := s.conns.Load() - before; n < 1 || n > 2 {
		t.Errorf("%d new connections, want one for each question", n)
	}
}

// A server whose certificate is not for the name, or of no known authority, is
// not believed, nor asked in the clear.
func TestResolveOverTLSVerifies(t *testing.T) {
	s := startDoT(t, "dns.example")
	byAddress := startDoT(t, "127.0.0.1")
	tests := []struct {
		name   string
		server Server
		roots  *x509.CertPool
		ok     bool
	}{
		{"right", Server{OverTLS, s.Addr, "dns.example"}, s.roots, true},
		{"by address", Server{OverTLS, byAddress.Addr, ""}, byAddress.roots, true},
		{"another name", Server{OverTLS, s.Addr, "other.example"}, s.roots, false},
		{"not for the address", Server{OverTLS, s.Addr, ""}, s.roots, false},
		{"no known authority", Server{OverTLS, s.Addr, "dns.example"}, nil, false},
		{"does not speak TLS", Server{OverTLS, s.DNSServer.Addr, "dns.example"}, s.roots, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			before := len(s.Questions())
			r := &Client{Servers: []Server{tt.server}, Roots: tt.roots}
			t.Cleanup(r.CloseIdle)
			addrs, err := r.Resolve(t.Context(), testnet.ParseName(t, "four.example"))
			if (err == nil) != tt.ok || (len(addrs) == 1) != tt.ok {
				t.Errorf("%v, %v", addrs, err)
			}
			if asked := len(s.Questions()) > before; asked && !tt.ok {
				t.Error("the server got the question all the same")
			}
		})
	}
}

func TestResolveOverTCP(t *testing.T) {
	s := testnet.StartDNS(t, testZone)
	r := &Client{Servers: []Server{{OverTCP, s.Addr, ""}}}
	a, err := r.Lookup(t.Context(), testnet.ParseName(t, "alias.example"))
	if err != nil || len(a.Addrs) != 3 || a.TTL != time.Minute {
		t.Errorf("%+v, %v", a, err)
	}
	for _, q := range s.Questions() {
		if !strings.HasPrefix(q, "tcp ") {
			t.Errorf("asked %q", q)
		}
	}
}

// The TTL of an answer is the least on the way to its addresses, and nothing of
// half an answer is kept.
func TestLookupTTL(t *testing.T) {
	s := testnet.StartDNS(t, `
long.example.  600 IN CNAME short.example.
short.example. 20 IN CNAME end.example.
end.example.   300 IN A 192.0.2.1
end.example.   400 IN AAAA 2001:db8::1
half.example.  300 IN A 192.0.2.7
zero.example.  0 IN A 192.0.2.7
`)
	r := &Client{Servers: []Server{UDPServer(s.Addr)}}
	for name, want := range map[string]time.Duration{
		"long.example": 20 * time.Second, "end.example": 300 * time.Second, "half.example": 0, "zero.example": 0,
	} {
		if a, err := r.Lookup(t.Context(), testnet.ParseName(t, name)); err != nil || a.TTL != want {
			t.Errorf("%s: %+v, %v; want a TTL of %v", name, a, err, want)
		}
	}
}

// Authorities are replaced while the resolver is in use: a server that they do not
// know is not asked any more, over no connection that is open either.
func TestSetRoots(t *testing.T) {
	s := startDoT(t, "dns.example")
	r := &Client{Servers: []Server{{OverTLS, s.Addr, "dns.example"}}, Roots: s.roots}
	t.Cleanup(r.CloseIdle)
	look := func() error {
		_, err := r.Resolve(t.Context(), testnet.ParseName(t, "both.example"))
		return err
	}
	if err := look(); err != nil {
		t.Fatal(err)
	}
	_, others := certificate(t, "dns.example")
	r.SetRoots(others)
	if err := look(); err == nil {
		t.Error("a server of another authority answers")
	}
	r.SetRoots(s.roots)
	if err := look(); err != nil {
		t.Error(err)
	}
}

// A closing connection notes that it was closed.
type closing struct {
	net.Conn
	closed bool
}

func (c *closing) Close() error { c.closed = true; return nil }

// What waits for a next question is bounded in number and time, and closed when it is
// given up.
func TestIdlePool(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p idlePool
		server := UDPServer(netip.MustParseAddrPort("192.0.2.1:853"))
		keep := func(ctx context.Context) *closing {
			c := &closing{}
			p.keep(ctx, server, &dns.Conn{Conn: c})
			return c
		}
		over, cancel := context.WithCancel(t.Context())
		cancel()
		if !keep(over).closed || p.take(server) != nil {
			t.Error("one that its context has closed is kept")
		}
		var kept []*closing
		for range idleConns {
			kept = append(kept, keep(t.Context()))
		}
		if !keep(t.Context()).closed {
			t.Error("one more than the bound is kept")
		}
		if c := p.take(server); c == nil || c.Conn != net.Conn(kept[idleConns-1]) {
			t.Errorf("took %v, want the last", c)
		}
		time.Sleep(idleTimeout + time.Second)
		synctest.Wait()
		for i, c := range kept[:idleConns-1] {
			if !c.closed {
				t.Errorf("%d still waits after %v", i, idleTimeout)
			}
		}
		if kept[idleConns-1].closed || p.take(server) != nil || len(p.conns[server]) != 0 {
			t.Errorf("in use: closed %t; %d wait", kept[idleConns-1].closed, len(p.conns[server]))
		}
		c := keep(t.Context())
		p.forget(server)
		if !c.closed || p.take(server) != nil {
			t.Error("one that was given up is kept")
		}
	})
}
