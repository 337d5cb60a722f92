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
