package compose_test

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestRenewedCA wants that a run trusts the company's certificates as they are when
// it starts, without a new start of the executor.
func TestRenewedCA(t *testing.T) {
	file := filepath.Join(t.TempDir(), "ca.pem")
	renew := func() string {
		block := authority(t)
		if err := os.WriteFile(file, block, 0o644); err != nil {
			t.Fatal(err)
		}
		place := exec.Command("bash", "-c", asDemo+`. scripts/env.sh && . scripts/state.sh && place "$@"`, "bash", file, "extra-ca.pem")
		place.Dir, place.Env = "..", st.env
		if out, err := place.CombinedOutput(); err != nil {
			t.Fatalf("renew the certificate: %v\n%s", err, out)
		}
		lines := strings.Fields(string(block))
		return lines[len(lines)-3] // of the signature, before "-----END CERTIFICATE-----"
	}
	first := renew()
	reconfigure(t, "SALLYPORT_EXTRA_CA: "+filepath.Join(st.state, "extra-ca.pem"))
	started := docker(t, "inspect", "-f", "{{.State.StartedAt}}", container(t, "executor", ""))
	if out, _ := output(t, "strict", `cat $SSL_CERT_FILE`); !strings.Contains(out, first) {
		t.Errorf("a run does not trust the certificate:\n%s", out[max(0, len(out)-200):])
	}
	second := renew()
	if out, _ := output(t, "strict", `cat $SSL_CERT_FILE`); !strings.Contains(out, second) || strings.Contains(out, first) {
		t.Errorf("the next run does not trust the renewed one in its place:\n%s", out[max(0, len(out)-200):])
	}
	if now := docker(t, "inspect", "-f", "{{.State.StartedAt}}", container(t, "executor", "")); now != started {
		t.Errorf("the executor was started again, at %s", now)
	}
}

// authority makes a certificate of an authority that signs nothing, as PEM.
func authority(t *testing.T) []byte {
	t.Helper()
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "company"},
		NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, public, private)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}
