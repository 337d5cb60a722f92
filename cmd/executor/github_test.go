package main

import (
	"bytes"
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
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	state, dir := t.TempDir(), t.TempDir()
	if err := os.Mkdir(filepath.Join(state, "tokens"), 0o700); err != nil {
		t.Fatal(err)
	}
	for path, text := range map[string]string{
		dir + "/app.pem": string(pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)})),
		dir + "/ca.pem":  string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: hub.Certificate().Raw})),
		state + "/tokens/run.x.json": fmt.Sprintf(`{"source":"app","api":"%s/api/v3","run":"run","token":"ghs_left-0123456789","expires":%q}`,
			hub.URL, time.Now().Add(time.Hour).Format(time.RFC3339)),
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("DOCKER_HOST", "unix://"+filepath.Join(dir, "absent.sock"))
	for range 2 {
		var out bytes.Buffer
		err = run(t.Context(), nil, []string{"SALLYPORT_STATE=" + state, "SALLYPORT_EXTRA_CA=" + dir + "/ca.pem", "SALLYPORT_GITHUB_APP_ID=7",
			"SALLYPORT_GITHUB_APP_KEY_FILE=" + dir + "/app.pem", "SALLYPORT_GITHUB_API_URL=" + hub.URL + "/api/v3/"}, &out)
		if err == nil || !strings.Contains(err.Error(), "absent.sock") || revoked != 1 || strings.Contains(out.String(), "ghs_") {
			t.Errorf("%v, %d revocations; the log: %s", err, revoked, &out)
		}
	}
}
