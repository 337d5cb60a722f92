package main

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
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
