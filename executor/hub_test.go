package executor_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"sallyport/compose/internet/github"
	"sallyport/executor"
	"sallyport/executor/api"
	"sallyport/executor/dispatch"
	"sallyport/executor/plan"
	"sallyport/githubauth"
)

// A testGitHub is the stack's GitHub with an App that knows it by its real names.
type testGitHub struct {
	t       testing.TB
	server  *github.Server
	control *httptest.Server
	addr    string // of TLS
	roots   *x509.CertPool
	key     string // path of the App's private key

	mu    sync.Mutex // guards asked
	asked []string   // the bodies of the requests for tokens
}

func startGitHub(t testing.TB) *testGitHub {
	t.Helper()
	server, err := github.New(t.Context(), github.Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	cert, roots := certificate(t, github.Hosts)
	g := &testGitHub{t: t, server: server, control: httptest.NewServer(server.Control()), roots: roots, key: filepath.Join(t.TempDir(), "app.pem")}
	front := httptest.NewUnstartedServer(g)
	front.TLS = &tls.Config{Certificates: []tls.Certificate{cert}}
	front.StartTLS()
	g.addr = front.Listener.Addr().String()
	t.Cleanup(func() { front.Close(); g.control.Close() })
	if err := os.WriteFile(g.key, server.KeyPEM(), 0o600); err != nil {
		t.Fatal(err)
	}
	return g
}

// ServeHTTP notes what tokens are asked for.
func (g *testGitHub) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if strings.HasSuffix(r.URL.Path, "/access_tokens") {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			body = []byte(err.Error())
		}
		g.mu.Lock()
		g.asked = append(g.asked, string(body))
		g.mu.Unlock()
		r.Body = io.NopCloser(bytes.NewReader(body))
	}
	g.server.ServeHTTP(w, r)
}

// wantAsked checks what tokens have been asked for, each as its body.
func (g *testGitHub) wantAsked(want ...string) {
	g.t.Helper()
	g.mu.Lock()
	defer g.mu.Unlock()
	var got []string
	for _, body := range g.asked {
		got = append(got, strings.TrimSpace(body))
	}
	if !slices.Equal(got, want) {
		g.t.Errorf("GitHub was asked for %q, want %q", got, want)
	}
}

// certificate makes one that vouches for itself.
func certificate(t testing.TB, names []string) (tls.Certificate, *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: names, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(leaf)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, pool
}

func (g *testGitHub) dial(ctx context.Context, network, _ string) (net.Conn, error) {
	var d net.Dialer
	return d.DialContext(ctx, network, g.addr)
}

// access is a change of the executor's configuration.
func (g *testGitHub) access(allowKey bool) func(*executor.Config) {
	return func(c *executor.Config) {
		key, err := githubauth.LoadKey(g.key)
		if err != nil {
			g.t.Fatal(err)
		}
		app, err := githubauth.NewApp(githubauth.Config{AppID: github.AppID, Signer: key, Roots: g.roots, Dial: g.dial, Log: c.Log})
		if err != nil {
			g.t.Fatal(err)
		}
		c.GitHub = &dispatch.GitHub{Issuer: app, APIURL: githubauth.DefaultAPIBaseURL, Source: api.SourceApp}
		c.Service.GitHub = &plan.GitHubService{Profiles: githubauth.DefaultProfiles(), AllowKey: allowKey}
		if allowKey {
			c.GitHub.Key = func() ([]byte, error) { return githubauth.ReadPEM(g.key) }
		}
	}
}

// fault makes something go wrong from now on; "" ends that.
func (g *testGitHub) fault(fault string) {
	g.t.Helper()
	method := http.MethodPut
	if fault == "" {
		method = http.MethodDelete
	}
	req, err := http.NewRequest(method, g.control.URL+"/github/faults", strings.NewReader(fault))
	if err != nil {
		g.t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		g.t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusNoContent {
		g.t.Fatalf("fault %s: %s", fault, resp.Status)
	}
}

// states are those of all tokens, the oldest first.
func (g *testGitHub) states() []string {
	g.t.Helper()
	resp, err := http.Get(g.control.URL + "/github/tokens")
	if err != nil {
		g.t.Fatal(err)
	}
	defer resp.Body.Close()
	var list []struct {
		State string `json:"state"`
	}
	if err := json.NewDecoder(resp.Body).Decode(&list); err != nil {
		g.t.Fatal(err)
	}
	var states []string
	for _, t := range list {
		states = append(states, t.State)
	}
	return states
}

// with adds githubAccess to a request.
func with(request, access string) string {
	return strings.TrimSuffix(request, "}") + `,"opts":{"githubAccess":` + access + `}}`
}

const readAccess = `{"owner":"acme","repo":"app","profile":"read"}`

// variable is one of the environment of the first job.
func (h *harness) variable(name string) (string, bool) {
	h.backend.mu.Lock()
	defer h.backend.mu.Unlock()
	for _, e := range h.backend.jobs[0].Env {
		if value, ok := strings.CutPrefix(e, name+"="); ok {
			return value, true
		}
	}
	return "", false
}

// wantNowhere checks that no place that outlives a run, or that its caller sees,
// tells a token, nor most of it.
func (h *harness) wantNowhere(id, token string) {
	h.t.Helper()
	places := h.places(id)
	encoded := base64.StdEncoding.EncodeToString([]byte("x-access-token:" + token))
	for place, text := range places {
		for _, part := range []string{token, token[:16], token[12:], token[20:34], encoded[24:44]} {
			if strings.Contains(text, part) {
				h.t.Errorf("%s holds %q of the token", place, part)
			}
		}
	}
	if !strings.Contains(places["events"], "token [GITHUB_TOKEN redacted]") {
		h.t.Errorf("control: the token was not printed at all: %s", places["events"])
	}
}

// places are the texts that outlive a run or that its caller sees.
func (h *harness) places(id string) map[string]string {
	h.t.Helper()
	_, events := h.do(http.MethodGet, "/v1/executions/"+id+"/events", "")
	_, execution := h.do(http.MethodGet, "/v1/executions/"+id, "")
	places := map[string]string{"events": string(events), "execution": string(execution), "log": h.log.String()}
	filepath.WalkDir(h.config.State, func(path string, d os.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			text, err := os.ReadFile(path)
			if err != nil {
				h.t.Error(err)
			}
			places[path] = string(text)
		}
		return err
	})
	return places
}

// wantNoKey checks that nothing of the App's private key went to the backend.
func (h *harness) wantNoKey(g *testGitHub) {
	h.t.Helper()
	h.backend.mu.Lock()
	defer h.backend.mu.Unlock()
	sent, err := json.Marshal(h.backend.specs)
	if err != nil {
		h.t.Fatal(err)
	}
	for _, job := range h.backend.jobs {
		sent = append(sent, strings.Join(append(job.Argv, job.Env...), "\n")...)
		for _, f := range job.Files {
			sent = append(sent, f.Content...)
		}
	}
	body := strings.Split(string(g.server.KeyPEM()), "\n")[3]
	if text := string(sent) + h.log.String(); strings.Contains(text, body) || strings.Contains(text, "PRIVATE KEY-----") || strings.Contains(text, "eyJ") {
		h.t.Error("the App's key, or a JSON web token, went into a sandbox or the log")
	}
}
