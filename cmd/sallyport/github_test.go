package main

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
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
	"sallyport/firewall/allowlist"
	"sallyport/firewall/hosts"
)

// A testGitHub has the App 7, which is installed for acme/shop and acme/site, may only
// read in octocat/hello, and is suspended for asleep/app.
type testGitHub struct{ url, ca, key string }

const writesAll = `{"id": 7, "account": {"login": "acme"}, "permissions": {"contents": "write", "issues": "write", "pull_requests": "write", "metadata": "read"}}`

// testInstallations are what the App may ask for, with the answers.
var testInstallations = map[string]string{
	"app":                              `{"id": 7, "slug": "acme-helper"}`,
	"repos/acme/shop/installation":     writesAll,
	"repos/acme/site/installation":     writesAll,
	"repos/octocat/hello/installation": `{"id": 8, "account": {"login": "octocat"}, "permissions": {"contents": "read", "issues": "read", "pull_requests": "read", "metadata": "read"}}`,
	"repos/asleep/app/installation":    `{"id": 9, "account": {"login": "asleep"}, "suspended_at": "2026-01-01T00:00:00Z", "permissions": {"contents": "read", "issues": "read", "pull_requests": "read", "metadata": "read"}}`,
}

func startGitHub(t *testing.T) testGitHub {
	t.Helper()
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		answer, found := testInstallations[strings.TrimPrefix(r.URL.Path, "/api/v3/")]
		part := strings.Split(strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "), ".")
		if len(part) != 3 {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		claims, err := base64.RawURLEncoding.DecodeString(part[1])
		switch {
		case err != nil:
			w.WriteHeader(http.StatusUnauthorized)
		case !strings.Contains(string(claims), `"iss":"7"`):
			w.WriteHeader(http.StatusNotFound)
			w.Write([]byte(`{"message": "Integration not found"}`))
		case found:
			w.Write([]byte(answer))
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
	for u := range uploads() {
		if _, err := firewall.ParseName(u.host); err != nil || u.what == "" || seen[u.host] {
			t.Errorf("%+v: %v", u, err)
		}
		seen[u.host] = true
	}
	doc, err := os.ReadFile("../../docs/github.md")
	if err != nil {
		t.Fatal(err)
	}
	for r := range hosts.Registries.All() {
		if !strings.Contains(string(doc), "\n| `"+r.Host+"` | ") || !strings.Contains(string(doc), " | <"+r.Source+"> |") {
			t.Errorf("docs/github.md has no row for %s with its source", r.Host)
		}
	}
	_, example, _ := strings.Cut(string(doc), "```yaml allowlist\n")
	example, _, _ = strings.Cut(example, "```")
	policies, err := allowlist.Parse(strings.NewReader(example), "docs/github.md")
	if err != nil {
		t.Fatal(err)
	}
	write, _ := policies.Policy("write")
	for u := range uploads() {
		if name, d := reached(write, u); d.Allowed() {
			t.Errorf("docs/github.md: the policy for runs that write reaches %s", name)
		}
	}
	if len(seen) < 50 {
		t.Errorf("only %d hosts", len(seen))
	}
}

// TestReached: a known host itself, one below it, and neither.
func TestReached(t *testing.T) {
	policies, err := allowlist.Parse(strings.NewReader(`
version: 1
groups: {packages: [.pypi.org, .crates.io]}
policies:
  p: {allow: [packages, my.webhook.site, .workers.dev, own.pages.dev, {host: pastebin.com, ports: [80]}], remove: [crates.io]}
  open: {allow: any}
`), "t.yaml")
	if err != nil {
		t.Fatal(err)
	}
	p, _ := policies.Policy("p")
	for _, test := range []struct {
		host   string
		suffix bool
		want   string
	}{
		{"upload.pypi.org", false, "upload.pypi.org"},
		{"webhook.site", false, "my.webhook.site"},
		{"hook.site", false, ""},    // the end of a label makes no subdomain
		{"pastebin.com", false, ""}, // not for TLS
		{"crates.io", false, ""},
		{"rubygems.org", false, ""},
		{"workers.dev", true, ".workers.dev"},
		{"pages.dev", true, ""}, // the operator's own only
	} {
		if got, d := reached(p, upload{host: test.host, suffix: test.suffix}); got != test.want || d.Allowed() != (got != "") {
			t.Errorf("%s is reached as %q, %v; want %q", test.host, got, d, test.want)
		}
	}
	open, _ := policies.Policy("open")
	for u := range uploads() {
		if _, d := reached(open, u); d.Reason != firewall.ReasonOpen {
			t.Errorf("open: %+v: %v", u, d)
		}
	}
}
