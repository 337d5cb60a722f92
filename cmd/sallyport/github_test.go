package main

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"sallyport/firewall"
)

// A testGitHub has an App that is installed for acme/shop and acme/site.
type testGitHub struct{ url, ca, key string }

func startGitHub(t *testing.T) testGitHub {
	t.Helper()
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch jwt, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer "); {
		case !ok || strings.Count(jwt, ".") != 2:
			w.WriteHeader(http.StatusUnauthorized)
		case r.URL.Path == "/api/v3/repos/acme/shop/installation", r.URL.Path == "/api/v3/repos/acme/site/installation":
			w.Write([]byte(`{"id": 7, "account": {"login": "acme"}}`))
		default:
			w.WriteHeader(http.StatusNotFound)
		}
	}))
	srv.Config.ErrorLog = log.New(io.Discard, "", 0) // a client that does not trust it says so itself
	srv.StartTLS()
	t.Cleanup(srv.Close)
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	g := testGitHub{srv.URL + "/api/v3/", filepath.Join(dir, "ca.pem"), filepath.Join(dir, "app.pem")}
	for path, block := range map[string]*pem.Block{
		g.ca:  {Type: "CERTIFICATE", Bytes: srv.Certificate().Raw},
		g.key: {Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)},
	} {
		if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o400); err != nil {
			t.Fatal(err)
		}
	}
	return g
}

func (g testGitHub) setenv(env *testscript.Env) {
	env.Setenv("GITHUB_URL", g.url)
	env.Setenv("GITHUB_CA", g.ca)
	env.Setenv("GITHUB_KEY", g.key)
}

// TestUploads: each row says of a host what it is and where that is written.
func TestUploads(t *testing.T) {
	seen := make(map[string]bool)
	for host, what := range uploads() {
		if _, err := firewall.ParseName(host); err != nil || what == "" || seen[host] {
			t.Errorf("%s (%s): %v", host, what, err)
		}
		seen[host] = true
	}
	for _, r := range registries {
		if !strings.HasPrefix(r.source, "https://") {
			t.Errorf("%s has no source", r.host)
		}
	}
	if len(seen) < 50 {
		t.Errorf("only %d hosts", len(seen))
	}
}

// TestReached: a known host itself, one below it, and neither.
func TestReached(t *testing.T) {
	policies, err := firewall.Parse(strings.NewReader(`
version: 1
groups: {packages: [.pypi.org, .crates.io]}
policies:
  p: {allow: [packages, my.ngrok.io, {host: webhook.site, ports: [80]}], remove: [crates.io]}
  open: {allow: any}
`), "t.yaml")
	if err != nil {
		t.Fatal(err)
	}
	p, _ := policies.Policy("p")
	for host, want := range map[string]string{
		"upload.pypi.org": "upload.pypi.org",
		"ngrok.io":        "my.ngrok.io",
		"grok.io":         "", // the end of a label makes no subdomain
		"webhook.site":    "", // not for TLS
		"crates.io":       "",
		"rubygems.org":    "",
	} {
		if got, d := reached(p, host); got != want || d.Allowed() != (want != "") {
			t.Errorf("%s is reached as %q, %v; want %q", host, got, d, want)
		}
	}
	open, _ := policies.Policy("open")
	if got, d := reached(open, "upload.pypi.org"); got == "" || d.Reason != firewall.ReasonOpen {
		t.Errorf("open: %q, %v", got, d)
	}
}
