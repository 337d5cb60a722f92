package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sallyport/executor/dispatch"
	"sallyport/githubauth"
)

func TestSetUpGitHub(t *testing.T) {
	dir := t.TempDir()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{
		"app.pem":  string(pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)})),
		"token":    "github_pat_0123456789abcdef\n",
		"good.yml": "version: 1\nprofiles:\n  docs: {permissions: {contents: read}}\n",
		"bad.yml":  "version: 1\nprofiles:\n  docs: {permissions: {nonsense: read}}\n",
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	app := "APP_ID=7 APP_KEY_FILE=" + dir + "/app.pem "
	token := "TOKEN_FILE=" + dir + "/token "
	for _, tt := range []struct{ name, settings, source, want string }{
		{"nothing", "", "", ""},
		{"an App", app, "app", ""},
		{"an App that hands out its key", app + "ALLOW_APP_KEY=true", "app", ""},
		{"an Enterprise Server", app + "API_URL=https://ghe.example/api/v3/", "app", ""},
		{"own profiles", app + "PROFILES=" + dir + "/good.yml", "app", ""},
		{"a static token", token + "ALLOW_STATIC_TOKEN=true", "static", ""},

		{"no key", "APP_ID=7", "", "must both be set"},
		{"no number", "APP_KEY_FILE=" + dir + "/app.pem", "", "must both be set"},
		{"a negative number", "APP_ID=-7 APP_KEY_FILE=" + dir + "/app.pem", "", "must both be set"},
		{"no such key", "APP_ID=7 APP_KEY_FILE=" + dir + "/nosuch", "", "nosuch"},
		{"a key that is none", "APP_ID=7 APP_KEY_FILE=" + dir + "/token", "", "token"},
		{"both", app + token, "", "one of them"},
		{"a static token by accident", token, "", "SALLYPORT_GITHUB_ALLOW_STATIC_TOKEN=true"},
		{"a key of no App", token + "ALLOW_STATIC_TOKEN=true ALLOW_APP_KEY=true", "", "no App"},
		{"an odd address", app + "API_URL=ftp://x", "", "ftp"},
		{"bad profiles", app + "PROFILES=" + dir + "/bad.yml", "", "bad.yml:3"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var environ []string
			for _, v := range strings.Fields(tt.settings) {
				environ = append(environ, "SALLYPORT_GITHUB_"+v)
			}
			s, err := parseSettings(environ)
			if err != nil {
				t.Fatal(err)
			}
			access, service, err := setUpGitHub(s, slog.New(slog.DiscardHandler))
			if tt.want != "" {
				if err == nil || !strings.Contains(err.Error(), tt.want) {
					t.Errorf("%v, want an error with %q", err, tt.want)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if (access == nil) != (tt.source == "") || (service == nil) != (tt.source == "") {
				t.Fatalf("%+v, %+v", access, service)
			}
			if access != nil && (access.Source != tt.source || service.AllowKey != strings.Contains(tt.settings, "APP_KEY=true") || service.AllowKey != (access.Key != nil)) {
				t.Errorf("%+v, %+v", access, service)
			}
		})
	}
}

// TestStaticTokenForAll: of a token file that others can read, the log tells as it
// does of the App's key.
func TestStaticTokenForAll(t *testing.T) {
	path := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(path, []byte("github_pat_0123456789abcdef\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for mode, warned := range map[os.FileMode]bool{0o600: false, 0o644: true} {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		s, err := parseSettings([]string{"SALLYPORT_GITHUB_TOKEN_FILE=" + path, "SALLYPORT_GITHUB_ALLOW_STATIC_TOKEN=true"})
		if err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		if _, _, err := setUpGitHub(s, slog.New(slog.NewTextHandler(&out, nil))); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(out.String(), "others than its owner may read") != warned || strings.Contains(out.String(), "0123456789") {
			t.Errorf("mode %o: the log: %s", mode, &out)
		}
	}
}

// TestCheckApp: an App whose number or key GitHub does not take is told of before a
// run asks for it; no request is made for a static token, or without any.
func TestCheckApp(t *testing.T) {
	for _, tt := range []struct {
		name, answer string
		code         int
		level, want  string
	}{
		{"right", `{"id": 7, "slug": "acme-helper"}`, 200, "INFO", "acme-helper"},
		{"no such App", `{"message": "Integration not found"}`, 404, "WARN", "GitHub knows no App 7"},
		{"another key", `{"message": "A JSON web token could not be decoded"}`, 401, "WARN", "is the private key that of App 7"},
	} {
		asked := 0
		hub := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/api/v3/app" && strings.Count(r.Header.Get("Authorization"), ".") == 2 {
				asked++
			}
			w.WriteHeader(tt.code)
			w.Write([]byte(tt.answer))
		}))
		defer hub.Close()
		s, err := parseSettings(appSettings(t, hub))
		if err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		log := slog.New(slog.NewTextHandler(&out, nil))
		access, _, err := setUpGitHub(s, log)
		if err != nil || asked != 0 {
			t.Fatalf("%s: %v; asked %d times", tt.name, err, asked)
		}
		checkApp(t.Context(), access, log)
		if asked != 1 || !strings.Contains(out.String(), "level="+tt.level) || !strings.Contains(out.String(), tt.want) || strings.Contains(out.String(), "eyJ") {
			t.Errorf("%s: asked %d times; the log: %s", tt.name, asked, &out)
		}
	}
}

func TestCheckAppSaysNothing(t *testing.T) {
	ended, end := context.WithCancel(t.Context())
	end()
	var out bytes.Buffer
	log := slog.New(slog.NewTextHandler(&out, nil))
	key := new(githubauth.Key)
	app, err := githubauth.NewApp(githubauth.Config{AppID: 7, Signer: key, APIBaseURL: "https://127.0.0.1:1/"})
	if err != nil {
		t.Fatal(err)
	}
	checkApp(ended, &dispatch.GitHubAccess{Issuer: app}, log) // at its end the executor says nothing of it
	checkApp(t.Context(), &dispatch.GitHubAccess{Issuer: new(githubauth.Static)}, log)
	checkApp(t.Context(), nil, log)
	if out.Len() > 0 {
		t.Errorf("the log: %s", &out)
	}
}

// TestEngineAway: what an executor that was killed left at GitHub is revoked by the
// next one although that finds no engine, again and again.
//
// oracle: GitHub, which counts the revocations
func TestEngineAway(t *testing.T) {
	revoked := 0
	hub := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodDelete && r.URL.Path == "/api/v3/installation/token" && r.Header.Get("Authorization") == "Bearer ghs_left-0123456789" {
			revoked++
		}
		w.WriteHeader(http.StatusNoContent)
	}))
	defer hub.Close()
	state, dir := t.TempDir(), t.TempDir()
	if err := os.Mkdir(filepath.Join(state, "tokens"), 0o700); err != nil {
		t.Fatal(err)
	}
	left := fmt.Sprintf(`{"source":"app","api":"%s/api/v3","run":"run","token":"ghs_left-0123456789","expires":%q}`,
		hub.URL, time.Now().Add(time.Hour).Format(time.RFC3339))
	if err := os.WriteFile(state+"/tokens/run.x.json", []byte(left), 0o600); err != nil {
		t.Fatal(err)
	}
	environ := append(appSettings(t, hub), "SALLYPORT_STATE="+state)
	t.Setenv("DOCKER_HOST", "unix://"+filepath.Join(dir, "absent.sock"))
	for range 2 {
		var out bytes.Buffer
		err := run(t.Context(), nil, environ, &out)
		if err == nil || !strings.Contains(err.Error(), "absent.sock") || revoked != 1 || strings.Contains(out.String(), "ghs_") {
			t.Errorf("%v, %d revocations; the log: %s", err, revoked, &out)
		}
	}
}

// appSettings are those of an App at hub, with a key that is made for it.
func appSettings(t *testing.T, hub *httptest.Server) []string {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name, block := range map[string]*pem.Block{
		"app.pem": {Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)},
		"ca.pem":  {Type: "CERTIFICATE", Bytes: hub.Certificate().Raw},
	} {
		if err := os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return []string{"SALLYPORT_EXTRA_CA=" + dir + "/ca.pem", "SALLYPORT_GITHUB_APP_ID=7",
		"SALLYPORT_GITHUB_APP_KEY_FILE=" + dir + "/app.pem", "SALLYPORT_GITHUB_API_URL=" + hub.URL + "/api/v3/"}
}
