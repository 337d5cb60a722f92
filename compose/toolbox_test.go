package compose_test

import (
	"slices"
	"strings"
	"testing"

	"sallyport/firewall"
	"sallyport/firewall/account"
)

// toolbox are clients that need the image sallyport/clients.
var toolbox = []realClient{
	{
		name:    "pip",
		allowed: pip("pypi.docs.example") + ` && PYTHONPATH=/tmp/pip python3 -c 'import hello_sallyport; print(hello_sallyport.greeting)'`, want: "Hello from PyPI.",
		refused: pip("refused.example"),
	},
	{
		name:    "net/http of Go",
		allowed: `/sallyport/clients get https://docs.example/`, want: "which the policy allows",
		refused: `/sallyport/clients get https://refused.example/`,
	},
	{
		name:    "gRPC, streaming both ways",
		allowed: `/sallyport/clients grpc grpc.docs.example one two three`, want: "heard one two three",
		refused: `/sallyport/clients grpc refused.example one`,
	},
	{
		name:    "headless Chromium",
		policy:  "browser",
		allowed: chromium("https://docs.example/tls"), want: "TLS 1.3 X25519MLKEM768 HTTP/2.0",
		refused: chromium("https://refused.example/") + ` | grep -v ERR_NAME_NOT_RESOLVED`,
	},
}

// pip installs into /tmp/pip. Between tries of its own it would wait 8 s in all.
func pip(host string) string {
	return `python3 $(ls /usr/share/python-wheels/pip-*.whl)/pip install -q --disable-pip-version-check --no-cache-dir --retries 0 --target /tmp/pip --index-url https://` + host + `/simple hello-sallyport`
}

// chromium prints a page, or the network error instead of it. On Linux it takes
// no authority from a file: the last one of the agent's, which is the demo's, is
// put where it looks.
func chromium(url string) string {
	return `mkdir -p $HOME/.pki/nssdb && certutil -d sql:$HOME/.pki/nssdb -N --empty-password &&
awk '/BEGIN CERTIFICATE/ {last = ""} {last = last $0 "\n"} END {printf "%s", last}' $SSL_CERT_FILE > /tmp/ca.pem &&
certutil -d sql:$HOME/.pki/nssdb -A -t C,, -n demo -i /tmp/ca.pem &&
chromium-headless-shell --no-sandbox --disable-gpu --dump-dom ` + url + ` 2>&1 | grep -o -E 'TLS 1.*|This is.*|ERR_[A-Z_]+'`
}

// TestLargerClients runs what the agent image has no room for, in an image of its
// own that the executor takes for the time of this test.
func TestLargerClients(t *testing.T) {
	useClientsImage(t)
	for _, c := range toolbox {
		t.Run(c.name, func(t *testing.T) { checkClient(t, c) })
	}
	t.Run("hello of Chromium", browserHello)
}

// browserHello looks at what Chromium's hello holds, and that a policy without
// "ech: pass" refuses it for that: nobody can tell whether a name is hidden in it.
func browserHello(t *testing.T) {
	before := lastHit(t)
	output(t, "browser", chromium("https://docs.example/tls"))
	if !slices.ContainsFunc(hits(t, before), func(h hit) bool {
		return h.Kind == "tls" && h.Name == "docs.example" && h.Detail == "alpn=h2,http/1.1 grease post-quantum ech"
	}) {
		t.Errorf("the far side saw no hello of a browser: %+v", hits(t, before))
	}
	before = lastHit(t)
	out, res := output(t, "strict", guarded(chromium("https://docs.example/tls")))
	if strings.Contains(out, "TLS 1.3") || strings.Contains(out, "status 124") {
		t.Errorf("under strict: %q, want an error of the network at once", out)
	}
	for _, h := range hits(t, before) {
		if h.Kind == "tls" {
			t.Errorf("under strict the far side saw %+v", h)
		}
	}
	wantRow(t, res.Receipt, "docs.example", account.KindTLS, firewall.ReasonECH)
}

// useClientsImage has the executor start sandboxes from the image of clients
// until the test ends.
func useClientsImage(t *testing.T) {
	t.Helper()
	if out, err := st.script("scripts/images", "clients"); err != nil {
		t.Fatalf("build the image: %v\n%s", err, out)
	}
	reconfigure(t, `SALLYPORT_AGENT_IMAGE: 'sallyport/clients:dev'`)
}
