package gate

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sallyport/gate/settings"
)

// What stands in files beside the allowlist is read anew with it, and one that is
// wrong changes nothing: neither the policies nor what was read before.
func TestReloadOfFilesBeside(t *testing.T) {
	dir := t.TempDir()
	credentials, ca, list := filepath.Join(dir, "credentials"), filepath.Join(dir, "ca.pem"), filepath.Join(dir, "allowlist.yaml")
	first, second := authority(t), authority(t)
	writeFile(t, credentials, "user:first\n")
	writeFile(t, ca, first)
	const begin = "version: 1\npolicies:\n  strict: {allow: [{host: a.example, via: "
	writeFile(t, list, begin+"corp}]}\n")
	s, err := settings.Parse([]string{"SALLYPORT_ALLOWLIST=" + list, "SALLYPORT_PROXIES=corp=10.0.0.9:3128",
		"SALLYPORT_PROXY_CREDENTIALS=corp=" + credentials, "SALLYPORT_RESOLVERS=tls://192.0.2.1", "SALLYPORT_RESOLVER_CA=" + ca})
	if err != nil {
		t.Fatal(err)
	}
	f, err := newFiles(s)
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := f.proxy("corp"); ok {
		t.Error("a proxy before anything was read")
	}
	want := func(password string, fault string) {
		t.Helper()
		if !f.Changed() {
			t.Error("the change is not seen")
		}
		ps, err := f.load()
		if (err == nil) != (fault == "") || err != nil && !strings.Contains(err.Error(), fault) || err == nil && ps == nil {
			t.Errorf("loading: %v, want %q", err, fault)
		}
		if p, ok := f.proxy("corp"); !ok || p.Credentials != "user:"+password {
			t.Errorf("corp: %+v, want the password %s", p, password)
		}
		if f.Changed() {
			t.Error("a change is seen that there is not")
		}
	}
	want("first", "")
	writeFile(t, credentials, "user:second\n")
	want("second", "")
	writeFile(t, credentials, "user:third\n")
	writeFile(t, ca, "no certificate")
	want("second", "holds no certificate")
	writeFile(t, ca, second)
	want("third", "")
	writeFile(t, credentials, "nothing")
	want("third", "does not hold user:password")
	if err := os.Remove(credentials); err != nil {
		t.Fatal(err)
	}
	want("third", "no such file")
	writeFile(t, credentials, "user:fourth\n")
	writeFile(t, list, begin+"other}]}\n")
	want("third", `has "via: other"`)
	writeFile(t, list, "broken")
	want("third", "allowlist.yaml:1")
	writeFile(t, list, begin+"corp}]}\n")
	want("fourth", "")
}

// authority makes the certificate of an authority, as PEM.
func authority(t *testing.T) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}
