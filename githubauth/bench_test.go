package githubauth_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"log"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"sallyport/githubauth"
)

var quiet = log.New(io.Discard, "", 0)

func TestMain(m *testing.M) {
	for _, name := range []string{"HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"} {
		os.Unsetenv(name) // the servers are in this process
	}
	os.Exit(m.Run())
}

// A bench is an App and the GitHub that it talks to, over loopback.
type bench struct {
	github *fakeGitHub
	app    *githubauth.App
	logs   *syncBuffer
	dial   githubauth.Dial
	dialed *syncBuffer // the addresses, one on a line
}

type syncBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// newBench serves on ln, on loopback where nil; set prepares what is not usual.
func newBench(t testing.TB, ln *pipes, set ...func(*fakeGitHub, *githubauth.Config)) *bench {
	t.Helper()
	b := &bench{github: newFake(t), logs: new(syncBuffer), dialed: new(syncBuffer)}
	key, err := githubauth.LoadKey(keyFile(t, testKeys().app))
	if err != nil {
		t.Fatal(err)
	}
	config := githubauth.Config{AppID: testAppID, Signer: key, Roots: testKeys().roots, Log: slog.New(slog.NewTextHandler(b.logs, nil))}
	if ln != nil {
		serve(t, b.github, ln)
		config.Dial = ln.dial
	} else {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		serve(t, b.github, l)
		config.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
			io.WriteString(b.dialed, addr+"\n")
			return new(net.Dialer).DialContext(ctx, network, l.Addr().String())
		}
	}
	b.dial = config.Dial
	for _, f := range set {
		f(b.github, &config)
	}
	if b.app, err = githubauth.NewApp(config); err != nil {
		t.Fatal(err)
	}
	return b
}

// testKeys are made once: they take long.
var testKeys = sync.OnceValue(func() (keys struct {
	app, other  *rsa.PrivateKey
	roots       *x509.CertPool
	certificate tls.Certificate
}) {
	check := func(err error) {
		if err != nil {
			panic(err)
		}
	}
	var err error
	keys.app, err = rsa.GenerateKey(rand.Reader, 2048)
	check(err)
	keys.other, err = rsa.GenerateKey(rand.Reader, 2048)
	check(err)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	check(err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Date(1999, 1, 1, 0, 0, 0, 0, time.UTC), NotAfter: time.Date(2099, 1, 1, 0, 0, 0, 0, time.UTC),
		DNSNames: []string{"api.github.com", "github.example.com", "api.acme.ghe.com"},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	check(err)
	leaf, err := x509.ParseCertificate(der)
	check(err)
	keys.roots = x509.NewCertPool()
	keys.roots.AddCert(leaf)
	keys.certificate = tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
	return keys
})

// keyFile writes the App's key as GitHub gives it.
func keyFile(t testing.TB, key *rsa.PrivateKey) string {
	t.Helper()
	text := pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)})
	path := filepath.Join(t.TempDir(), "app.pem")
	if err := os.WriteFile(path, text, 0o400); err != nil {
		t.Fatal(err)
	}
	return path
}

// pipes are connections in memory: unlike the network's they let the clock of a
// synctest bubble go on.
type pipes struct {
	conns chan net.Conn
	ctx   context.Context
	close context.CancelFunc
}

func newPipes() *pipes {
	ctx, cancel := context.WithCancel(context.Background())
	return &pipes{make(chan net.Conn), ctx, cancel}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.ctx.Done():
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error   { p.close(); return nil }
func (p *pipes) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 443} }

func (p *pipes) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	ours, theirs := net.Pipe()
	select {
	case p.conns <- theirs:
		return ours, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-p.ctx.Done():
		return nil, net.ErrClosed
	}
}

// newFake is a GitHub with an organization and a user that have the App.
func newFake(t testing.TB) *fakeGitHub {
	all := map[string]string{"contents": "write", "issues": "write", "pull_requests": "write", "metadata": "read"}
	return &fakeGitHub{
		t: t, key: &testKeys().app.PublicKey, tokens: make(map[string]bool), count: make(map[string]int),
		accounts: []*account{
			{id: 11, login: "Acme", org: true, permissions: all, repositories: []string{"shop", "site", "Docs"}},
			{id: 12, login: "octocat", permissions: map[string]string{"contents": "read", "issues": "read", "pull_requests": "read", "metadata": "read"}, repositories: []string{"hello"}},
		},
	}
}

// serve starts f over TLS on ln until the test ends.
func serve(t testing.TB, f http.Handler, ln net.Listener) {
	t.Helper()
	srv := httptest.NewUnstartedServer(f)
	srv.Listener.Close()
	srv.Listener = ln
	srv.TLS = &tls.Config{Certificates: []tls.Certificate{testKeys().certificate}}
	srv.Config.ErrorLog = quiet
	srv.StartTLS()
	t.Cleanup(srv.Close)
}
