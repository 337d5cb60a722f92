package webhook_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"sallyport/executor/webhook"
)

var secret = "whsec_" + base64.StdEncoding.EncodeToString([]byte("a key of at least 24 bytes"))

var loopback = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}

// A receiver is a server of ours that notes what it got.
type receiver struct {
	*httptest.Server
	headers []http.Header
	bodies  []string
}

func receive(t *testing.T, answer func(http.ResponseWriter, *http.Request)) (*receiver, *x509.CertPool) {
	t.Helper()
	r := &receiver{}
	r.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, _ := io.ReadAll(req.Body)
		r.headers, r.bodies = append(r.headers, req.Header), append(r.bodies, string(body))
		answer(w, req)
	}))
	t.Cleanup(r.Close)
	roots := x509.NewCertPool()
	roots.AddCert(r.Certificate())
	return r, roots
}

// TestPost: a message arrives once, and its receiver sees by the specification's own library
// that it is ours, and that no other is.
func TestPost(t *testing.T) {
	status := http.StatusNoContent
	r, roots := receive(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) })
	e, err := webhook.New(webhook.Config{URL: r.URL + "/hook", Secret: secret, Private: loopback, Roots: roots})
	if err != nil {
		t.Fatal(err)
	}
	const body = `{"type":"approval.pending"}`
	if err := e.Post(t.Context(), "approval_1", time.Now(), []byte(body)); err != nil {
		t.Fatal(err)
	}
	if len(r.bodies) != 1 || r.bodies[0] != body || r.headers[0].Get("webhook-id") != "approval_1" || r.headers[0].Get("Content-Type") != "application/json" {
		t.Fatalf("%v %v", r.bodies, r.headers)
	}
	check, err := standardwebhooks.NewWebhook(secret)
	if err != nil {
		t.Fatal(err)
	}
	if err := check.Verify([]byte(body), r.headers[0]); err != nil {
		t.Errorf("the signature: %v", err)
	}
	forged := r.headers[0].Clone()
	forged.Set("webhook-id", "approval_2")
	if check.Verify([]byte(body+" "), r.headers[0]) == nil || check.Verify([]byte(body), forged) == nil {
		t.Error("control: another message verifies, too")
	}
	status = http.StatusInternalServerError
	if err := e.Post(t.Context(), "approval_1", time.Now(), []byte(body)); err == nil || !strings.Contains(err.Error(), "500") {
		t.Errorf("an answer of 500: %v", err)
	}
}

// TestNowhereElse: nothing is posted to a private address that was not admitted, to a
// metadata service whatever is admitted, over http to what is public, or to where an answer
// redirects.
//
// probe: T9
// oracle: the requests that the servers there got
func TestNowhereElse(t *testing.T) {
	inner, _ := receive(t, func(http.ResponseWriter, *http.Request) {})
	r, roots := receive(t, func(w http.ResponseWriter, req *http.Request) {
		http.Redirect(w, req, inner.URL, http.StatusTemporaryRedirect)
	})
	post := func(c webhook.Config) error {
		t.Helper()
		c.Secret = secret
		e, err := webhook.New(c)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		return e.Post(ctx, "approval_1", time.Now(), []byte("{}"))
	}
	_, port, _ := net.SplitHostPort(r.Listener.Addr().String())
	for _, test := range []struct{ url, want string }{
		{r.URL, "loopback, RFC 1122"},
		{"https://localhost:" + port, "loopback"},
		{"https://[::ffff:127.0.0.1]:" + port, "loopback"},
		{"https://169.254.169.254/", "metadata"},
		{"https://[fd00:ec2::254]/", "metadata"},
		{"https://10.0.0.1/", "private use"},
		{"https://0.0.0.0:" + port, "this network"},
	} {
		if err := post(webhook.Config{URL: test.url, Roots: roots}); err == nil || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "https://") {
			t.Errorf("%s: %v", test.url, err)
		}
	}
	admitted := append([]netip.Prefix{netip.MustParsePrefix("fc00::/7")}, loopback...)
	if err := post(webhook.Config{URL: "https://[fd00:ec2::254]/", Private: admitted}); err == nil || !strings.Contains(err.Error(), "metadata") {
		t.Errorf("a metadata service in an admitted range: %v", err)
	}
	if err := post(webhook.Config{URL: "http://192.0.1.1/", Private: loopback}); err == nil || !strings.Contains(err.Error(), "is public") {
		t.Errorf("http to the internet: %v", err)
	}
	if len(r.bodies) != 0 {
		t.Fatalf("%d requests came to a server that nobody admitted", len(r.bodies))
	}
	if err := post(webhook.Config{URL: r.URL, Private: loopback, Roots: roots}); err == nil || !strings.Contains(err.Error(), "307") {
		t.Errorf("a redirect: %v", err)
	}
	if len(r.bodies) != 1 || len(inner.bodies) != 0 {
		t.Errorf("the control got %d requests, and where it redirects to %d", len(r.bodies), len(inner.bodies))
	}
	// Whoever is there in the receiver's place, without its certificate, is told nothing.
	other := httptest.NewUnstartedServer(http.NotFoundHandler())
	other.TLS = &tls.Config{}
	other.StartTLS()
	defer other.Close()
	if err := post(webhook.Config{URL: other.URL, Private: loopback, Roots: x509.NewCertPool()}); err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("another certificate: %v", err)
	}
}

func TestNew(t *testing.T) {
	prefix := func(s string) []netip.Prefix { return []netip.Prefix{netip.MustParsePrefix(s)} }
	for want, c := range map[string]webhook.Config{
		"":                       {URL: "https://h.example/x", Secret: secret},
		"https://HOST/PATH":      {URL: "ftp://h.example", Secret: secret},
		"without a password":     {URL: "https://u:p@h.example", Secret: secret},
		"one of http":            {URL: "http://h.example", Secret: secret},
		"24 to 64 bytes":         {URL: "https://h.example", Secret: "c2hvcnQ="},
		"never be admitted":      {URL: "https://h.example", Secret: secret, Private: prefix("169.254.0.0/16")},
		"bits beyond its length": {URL: "https://h.example", Secret: secret, Private: prefix("10.0.0.1/8")},
		"is public":              {URL: "https://h.example", Secret: secret, Private: prefix("8.0.0.0/8")},
	} {
		if _, err := webhook.New(c); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", c, err, want)
		}
	}
}
