package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"
)

var demo = settings{LAN: netip.MustParseAddr("198.19.1.10"), WAN: netip.MustParseAddr("11.22.33.10")}

// ask asks a resolver on loopback and returns the code and the answers' data.
func ask(t *testing.T, server, name string, qtype uint16) (int, []string) {
	t.Helper()
	c := dns.Client{Timeout: 5 * time.Second}
	m, _, err := c.Exchange(new(dns.Msg).SetQuestion(name, qtype), server)
	if err != nil {
		t.Fatal(err)
	}
	var data []string
	for _, rr := range m.Answer {
		data = append(data, strings.TrimPrefix(rr.String(), rr.Header().String()))
	}
	return m.Rcode, data
}

func TestResolver(t *testing.T) {
	zone, err := parseZone(demo)
	if err != nil {
		t.Fatal(err)
	}
	pc, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	h := newHits(io.Discard)
	srv := &dns.Server{PacketConn: pc, Handler: &resolver{zone: zone, hits: h}}
	go srv.ActivateAndServe() // ends with Shutdown
	t.Cleanup(func() { _ = srv.Shutdown() })

	for _, c := range []struct {
		name  string
		qtype uint16
		rcode int
		want  []string
	}{
		{"api.anthropic.com.", dns.TypeA, dns.RcodeSuccess, []string{"198.19.1.10"}},
		{"Docs.Example.", dns.TypeA, dns.RcodeSuccess, []string{"198.19.1.10"}},
		{"docs.example.", dns.TypeAAAA, dns.RcodeSuccess, nil},
		{"refused.example.", dns.TypeA, dns.RcodeSuccess, []string{"11.22.33.10"}},
		{"silent.example.", dns.TypeA, dns.RcodeSuccess, []string{"11.22.33.138"}},
		{"mixed.example.", dns.TypeA, dns.RcodeSuccess, []string{"11.22.33.10", "198.19.1.10"}},
		{"mixed6.example.", dns.TypeAAAA, dns.RcodeSuccess, []string{"::1"}},
		{"alias.example.", dns.TypeA, dns.RcodeSuccess, []string{"private.example.", "198.19.1.10"}},
		{"rebind.example.", dns.TypeA, dns.RcodeSuccess, []string{"11.22.33.10"}},
		{"rebind.example.", dns.TypeAAAA, dns.RcodeSuccess, nil},
		{"rebind.example.", dns.TypeA, dns.RcodeSuccess, []string{"198.19.1.10"}},
		{"rebind.example.", dns.TypeA, dns.RcodeSuccess, []string{"11.22.33.10"}},
		{"nowhere.example.", dns.TypeA, dns.RcodeNameError, nil},
		{"10-1-2-3.addr.example.", dns.TypeA, dns.RcodeSuccess, []string{"10.1.2.3"}},
		{"10-1-2-3.addr.docs.example.", dns.TypeAAAA, dns.RcodeSuccess, nil},
		{"10-1-2.addr.example.", dns.TypeA, dns.RcodeNameError, nil},
	} {
		rcode, data := ask(t, pc.LocalAddr().String(), c.name, c.qtype)
		if rcode != c.rcode || !slices.Equal(data, c.want) {
			t.Errorf("%s %s: %s %q, want %s %q", c.name, dns.Type(c.qtype),
				dns.RcodeToString[rcode], data, dns.RcodeToString[c.rcode], c.want)
		}
	}
	if got := h.after(0)[1]; got.Kind != "dns" || got.Name != "docs.example" || got.Detail != "A" || got.Seq != 2 {
		t.Errorf("the second hit is %+v", got)
	}
}

// start serves the sites over TLS on loopback, as every name of the zone, and
// returns a client that reaches them.
func start(t *testing.T, h *hits) (*httptest.Server, *http.Client, string) {
	t.Helper()
	zone, err := parseZone(demo)
	if err != nil {
		t.Fatal(err)
	}
	id, err := newIdentity(zone.names())
	if err != nil {
		t.Fatal(err)
	}
	sites, _, err := newSites(t.Context(), t.TempDir(), nil)
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewUnstartedServer(h.count("https", sites))
	srv.TLS, srv.EnableHTTP2 = id.config(h), true
	srv.StartTLS()
	t.Cleanup(srv.Close)
	ca := filepath.Join(t.TempDir(), "ca.pem")
	if err := publish(ca, id.caPEM, 0o644); err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(id.caPEM)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}
	transport.DialContext = func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, srv.Listener.Addr().String())
	}
	return srv, &http.Client{Transport: transport, Timeout: 10 * time.Second}, ca
}

func get(t *testing.T, c *http.Client, url string) (int, string) {
	t.Helper()
	resp, err := c.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

func TestSites(t *testing.T) {
	var out bytes.Buffer
	h := newHits(&out)
	_, client, _ := start(t, h)
	for _, c := range []struct {
		url    string
		status int
		want   string
	}{
		{"https://docs.example/", 200, "docs.example"},
		{"https://docs.example/nothing", 404, ""},
		{"https://docs.example/bulk?bytes=70000", 200, strings.Repeat("\x00", 70000)},
		{"https://docs.example/bulk?bytes=-1", 400, "number"},
		{"https://refused.example/", 200, "This is refused.example"},
		{"https://api.anthropic.com/v1/models", 401, "x-api-key"},
		{"https://deb.example/Release", 200, "Packages"},
		{"https://deb.example/InRelease", 404, ""},
		{"https://git.docs.example/hello.git/HEAD", 200, "refs/heads/main"},
		{"https://npm.docs.example/hello-sallyport", 200, "integrity"},
		{"https://npm.docs.example/hello-sallyport/-/hello-sallyport-1.0.0.tgz", 200, "\x1f\x8b"},
		{"https://pypi.docs.example/simple/hello-sallyport/", 200, "sha256="},
		{"https://pypi.docs.example/files/hello_sallyport-1.0-py3-none-any.whl", 200, "PK"},
		{"https://docs.example/tls", 200, "TLS 1.3 X25519MLKEM768 HTTP/1.1"},
	} {
		status, body := get(t, client, c.url)
		if status != c.status || !strings.Contains(body, c.want) {
			t.Errorf("%s: %d %.80q, want %d and %.80q in it", c.url, status, body, c.status, c.want)
		}
	}
	all := h.after(0)
	if first := all[0]; first.Kind != "tls" || first.Name != "docs.example" {
		t.Errorf("the first hit is %+v", first)
	}
	if second := all[1]; second.Kind != "https" || second.Name != "docs.example" || second.Detail != "GET /" || second.To == "" {
		t.Errorf("the second hit is %+v", second)
	}
	if n := strings.Count(out.String(), "\n"); n != len(all) {
		t.Errorf("%d lines were logged, want %d", n, len(all))
	}
	if got := h.after(len(all) - 1); len(got) != 1 || got[0].Seq != len(all) {
		t.Errorf("after the last but one: %+v", got)
	}
}

func TestGitClone(t *testing.T) {
	srv, _, ca := start(t, newHits(io.Discard))
	dir := t.TempDir()
	_, port, _ := net.SplitHostPort(srv.Listener.Addr().String())
	cmd := exec.CommandContext(t.Context(), "git", "clone", "-q", "https://git.docs.example:"+port+"/hello.git", dir)
	cmd.Env = append(gitEnv(t.TempDir()), "PATH="+os.Getenv("PATH"), "GIT_SSL_CAINFO="+ca,
		"GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=http.curloptResolve", "GIT_CONFIG_VALUE_0=git.docs.example:"+port+":127.0.0.1")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("git clone: %v: %s", err, out)
	}
	if _, err := os.Stat(filepath.Join(dir, "README.md")); err != nil {
		t.Error(err)
	}
}

func TestAptDigests(t *testing.T) {
	_, client, _ := start(t, newHits(io.Discard))
	_, deb := get(t, client, "https://deb.example/hello-sallyport_1.0_all.deb")
	_, packages := get(t, client, "https://deb.example/./Packages")
	_, release := get(t, client, "https://deb.example/Release")
	if want := fmt.Sprintf("Size: %d\nSHA256: %x\n", len(deb), sha256.Sum256([]byte(deb))); !strings.Contains(packages, want) {
		t.Errorf("Packages does not contain %q:\n%s", want, packages)
	}
	if want := fmt.Sprintf(" %x %d Packages\n", sha256.Sum256([]byte(packages)), len(packages)); !strings.Contains(release, want) {
		t.Errorf("Release does not contain %q:\n%s", want, release)
	}
}

func TestTarGzIsWhole(t *testing.T) {
	packed, err := tarGz(time.Now(), "./control", aptControl)
	if err != nil {
		t.Fatal(err)
	}
	z, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		t.Fatal(err)
	}
	r := tar.NewReader(z)
	if _, err := r.Next(); err != nil {
		t.Fatal(err)
	}
	content, err := io.ReadAll(r)
	if err != nil || string(content) != aptControl {
		t.Errorf("%q, %v", content, err)
	}
	if _, err := r.Next(); err != io.EOF {
		t.Errorf("after the last file: %v", err)
	}
}

func TestHitsAreBounded(t *testing.T) {
	h := newHits(io.Discard)
	for range keptHits + 10 {
		h.add(hit{Kind: "tcp"})
	}
	kept := h.after(0)
	if len(kept) > keptHits || kept[len(kept)-1].Seq != keptHits+10 {
		t.Errorf("%d hits are kept, the last is %+v", len(kept), kept[len(kept)-1])
	}
}

func TestCanaryNotesAndAnswers(t *testing.T) {
	h := newHits(io.Discard)
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	at := netip.MustParseAddrPort(free.Addr().String())
	free.Close()
	done := make(chan error, 2)
	go func() { done <- serveTCPCanary(t.Context(), at, h) }()
	go func() { done <- serveUDPCanary(t.Context(), at, h) }()
	for _, network := range []string{"tcp", "udp"} {
		var said string
		for range 100 {
			if said = hear(network, at.String()); said != "" {
				break
			}
			time.Sleep(20 * time.Millisecond) // until it listens
		}
		if said != "reached\n" {
			t.Errorf("%s: the canary said %q", network, said)
		}
		if !slices.ContainsFunc(h.after(0), func(one hit) bool { return one.Kind == network && one.To == at.String() }) {
			t.Errorf("%s: no hit in %+v", network, h.after(0))
		}
	}
}

func hear(network, addr string) string {
	c, err := net.Dial(network, addr)
	if err != nil {
		return ""
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(time.Second))
	if _, err := c.Write([]byte("x")); err != nil {
		return ""
	}
	buf := make([]byte, 64)
	n, _ := c.Read(buf)
	return string(buf[:n])
}
