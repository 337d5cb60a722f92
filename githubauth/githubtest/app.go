package githubtest

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// asApp checks the JWT of a request with nothing but the standard library.
func (s *Server) asApp(w http.ResponseWriter, r *http.Request) bool {
	text, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	part := strings.Split(text, ".")
	if !ok || len(part) != 3 {
		s.say(w, 401, "A JSON web token could not be decoded")
		return false
	}
	var header struct{ Alg, Typ string }
	var claims struct {
		Iss      string
		Iat, Exp *int64
	}
	signature, err := base64.RawURLEncoding.DecodeString(part[2])
	sum := sha256.Sum256([]byte(part[0] + "." + part[1]))
	if err != nil || !unpack(part[0], &header) || !unpack(part[1], &claims) || header.Alg != "RS256" || header.Typ != "JWT" ||
		rsa.VerifyPKCS1v15(s.Key, crypto.SHA256, sum[:], signature) != nil {
		s.say(w, 401, "A JSON web token could not be decoded")
		return false
	}
	now := s.Now().Unix()
	switch {
	case claims.Iss != fmt.Sprint(AppID):
		s.say(w, 404, "Integration not found")
	case claims.Iat == nil || *claims.Iat > now:
		s.say(w, 401, "'Issued at' claim ('iat') must be an Integer representing the time that the assertion was issued")
	case claims.Exp == nil || *claims.Exp <= now:
		s.say(w, 401, "'Expiration time' claim ('exp') must be a numeric value representing the future time at which the assertion expires")
	case *claims.Exp > now+600 || *claims.Exp-*claims.Iat > 660:
		s.say(w, 401, "'Expiration time' claim ('exp') is too far in the future")
	default:
		return true
	}
	return false
}

func unpack(part string, into any) bool {
	text, err := base64.RawURLEncoding.DecodeString(part)
	return err == nil && json.Unmarshal(text, into) == nil
}

// KeySet is the App's key, another one, and what a Server proves itself by.
type KeySet struct {
	App, Other  *rsa.PrivateKey
	Roots       *x509.CertPool
	certificate tls.Certificate
}

// Keys are made once for each process: they take long.
var Keys = sync.OnceValue(func() (keys KeySet) {
	check := func(err error) {
		if err != nil {
			panic(err)
		}
	}
	var err error
	keys.App, err = rsa.GenerateKey(rand.Reader, 2048)
	check(err)
	keys.Other, err = rsa.GenerateKey(rand.Reader, 2048)
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
	keys.Roots = x509.NewCertPool()
	keys.Roots.AddCert(leaf)
	keys.certificate = tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
	return keys
})

// KeyPEM is the App's private key as GitHub hands it out: PKCS #1.
func KeyPEM() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(Keys().App)})
}

// KeyFile writes the App's private key for the time of a test.
func KeyFile(t testing.TB) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "app.pem")
	if err := os.WriteFile(path, KeyPEM(), 0o400); err != nil {
		t.Fatal(err)
	}
	return path
}

// Serve serves h over TLS on ln until the test ends, by the names of the API of
// github.com and of two others.
func Serve(t testing.TB, h http.Handler, ln net.Listener) {
	t.Helper()
	srv := httptest.NewUnstartedServer(h)
	srv.Listener.Close()
	srv.Listener = ln
	srv.TLS = &tls.Config{Certificates: []tls.Certificate{Keys().certificate}}
	srv.Config.ErrorLog = log.New(io.Discard, "", 0)
	srv.StartTLS()
	t.Cleanup(srv.Close)
}
