package githubauth_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sallyport/githubauth"
	"sallyport/githubauth/githubtest"
)

func TestLoadKey(t *testing.T) {
	der := func(b []byte, err error) []byte {
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	encode := func(kind string, der []byte) string {
		return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
	}
	pkcs1 := x509.MarshalPKCS1PrivateKey(githubtest.Keys().App)
	weak, err := rsa.GenerateKey(rand.Reader, 1024)
	if err != nil {
		t.Fatal(err)
	}
	curve, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	good := encode("RSA PRIVATE KEY", pkcs1)
	for _, test := range []struct{ name, text, wrong string }{
		{"PKCS #1", good, ""},
		{"PKCS #8", encode("PRIVATE KEY", der(x509.MarshalPKCS8PrivateKey(githubtest.Keys().App))), ""},
		{"text around it", "my key\n" + good + "\n\n", ""},
		{"Windows line ends", strings.ReplaceAll(good, "\n", "\r\n"), ""},
		{"empty", "", "no PEM"},
		{"base64", "c2VjcmV0c2VjcmV0", "no PEM"},
		{"cut", good[:len(good)/2], "no PEM"},
		{"damaged", encode("RSA PRIVATE KEY", pkcs1[:len(pkcs1)/2]), "whole private key"},
		{"two", good + good, "more than one"},
		{"1024 bits", encode("RSA PRIVATE KEY", x509.MarshalPKCS1PrivateKey(weak)), "1024 bits"},
		{"an elliptic curve", encode("PRIVATE KEY", der(x509.MarshalPKCS8PrivateKey(curve))), "not an RSA key"},
		{"the public half", encode("PUBLIC KEY", der(x509.MarshalPKIXPublicKey(&githubtest.Keys().App.PublicKey))), "PUBLIC KEY"},
		{"with a passphrase", encode("ENCRYPTED PRIVATE KEY", pkcs1), "passphrase"},
		{"too long", good + strings.Repeat("\n", 70<<10), "longer than"},
	} {
		path := filepath.Join(t.TempDir(), "key.pem")
		if err := os.WriteFile(path, []byte(test.text), 0o400); err != nil {
			t.Fatal(err)
		}
		key, err := githubauth.LoadKey(path)
		text, again := githubauth.ReadPEM(path)
		if test.wrong == "" {
			if err != nil || key.Warning != "" || again != nil || string(text) != test.text {
				t.Errorf("%s: %v, %v, %v", test.name, key, err, again)
			}
			continue
		}
		if err == nil || again == nil || key != nil || text != nil || !strings.Contains(err.Error(), test.wrong) || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v, %v", test.name, err, again)
			continue
		}
		searchFor(t, []string{good[40:140]}, err.Error()+again.Error())
	}
}

func TestKeyFile(t *testing.T) {
	path := githubtest.KeyFile(t)
	for mode, warns := range map[os.FileMode]bool{0o400: false, 0o600: false, 0o440: true, 0o644: true, 0o604: true} {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		key, err := githubauth.LoadKey(path)
		if err != nil || (key.Warning != "") != warns {
			t.Errorf("mode %o: %v, %v", mode, key.Warning, err)
		}
	}
	for _, path := range []string{t.TempDir(), "/dev/zero", path + "x", ""} {
		if _, err := githubauth.LoadKey(path); err == nil {
			t.Errorf("%q is a key", path)
		}
	}
}
