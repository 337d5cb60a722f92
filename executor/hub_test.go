package executor_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"sallyport/executor"
	"sallyport/executor/api"
	"sallyport/executor/dispatch"
	"sallyport/executor/plan"
	"sallyport/executor/statedir"
	"sallyport/githubauth"
	"sallyport/githubauth/githubtest"
	"sallyport/githubauth/scope"
)

// A testGitHub is a GitHub with an App that knows it by its real names.
type testGitHub struct {
	t      testing.TB
	server *githubtest.Server
	addr   string // of TLS
	key    string // path of the App's private key

	mu     sync.Mutex // guards what follows
	asked  []string   // the bodies of the requests for tokens
	broken brokenness
}

// startGitHub starts one where acme chose three repositories for the App, and other none.
func startGitHub(t testing.TB) *testGitHub {
	t.Helper()
	server := githubtest.New(t)
	server.Slug = "sallyport-demo"
	server.Accounts = []*githubtest.Account{{ID: 51001, Login: "acme", Organization: true,
		Permissions:  map[string]string{"contents": "write", "issues": "write", "metadata": "read", "pull_requests": "write", "workflows": "write"},
		Repositories: []string{"app", "lib", "site"}}}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := &testGitHub{t: t, server: server, addr: ln.Addr().String(), key: githubtest.KeyFile(t)}
	githubtest.Serve(t, g, ln)
	return g
}

// brokenness is what goes wrong at a testGitHub. The zero value: nothing.
type brokenness struct {
	// Only limits delay, status, body and truncate: "mint", "revoke", "app" (the App's own
	// requests and the look-ups of installations) or, if empty, everything.
	Only     string
	Delay    string // before the answer
	Status   int    // of the answer, in place of the right one
	Body     string
	Truncate bool // the answer ends in its middle
	// Scope makes a token other than what was asked for.
	Scope           string
	Skew, TokenLife string // of the server's clock, of tokens
}

// hits says whether r is among the requests that go wrong.
func (b brokenness) hits(r *http.Request) bool {
	switch path := r.URL.Path; b.Only {
	case "mint":
		return strings.HasSuffix(path, "/access_tokens")
	case "revoke":
		return r.Method == http.MethodDelete && path == "/installation/token"
	case "app":
		return strings.HasPrefix(path, "/app") || strings.HasSuffix(path, "/installation")
	}
	return true
}

// change makes the answer to a mint what Scope says.
func (b brokenness) change(a *githubtest.Given) {
	switch b.Scope {
	case "wider-permissions":
		a.Permissions = map[string]string{"contents": "write", "issues": "write", "metadata": "read", "pull_requests": "write", "workflows": "write"}
	case "wider-repositories":
		a.Repositories = append(a.Repositories, map[string]any{"name": "lib", "full_name": "acme/lib"})
	case "narrower-permissions":
		a.Permissions = map[string]string{"metadata": "read"}
	}
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
	g.mu.Lock()
	b := g.broken
	g.mu.Unlock()
	if !b.hits(r) {
		b = brokenness{}
	}
	if delay, _ := time.ParseDuration(b.Delay); delay > 0 {
		select {
		case <-time.After(delay):
		case <-r.Context().Done():
			panic(http.ErrAbortHandler) // no answer; net/http would make it a 200
		}
	}
	switch {
	case b.Truncate:
		g.server.ServeHTTP(&truncated{w}, r)
	case b.Status != 0:
		w.WriteHeader(b.Status)
		io.WriteString(w, b.Body)
	default:
		g.server.ServeHTTP(w, r)
	}
}

// truncated promises more than it sends: the connection ends in mid-answer.
type truncated struct{ http.ResponseWriter }

func (t *truncated) WriteHeader(status int) {
	t.Header().Set("Content-Length", "100000")
	t.ResponseWriter.WriteHeader(status)
}

func (t *truncated) Write(p []byte) (int, error) {
	n, err := t.ResponseWriter.Write(p[:len(p)/2])
	return n + len(p) - len(p)/2, err
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
		app, err := githubauth.NewApp(githubauth.Config{AppID: githubtest.AppID, Signer: key, Roots: githubtest.Keys().Roots, Dial: g.dial, Log: c.Log})
		if err != nil {
			g.t.Fatal(err)
		}
		c.GitHub = &dispatch.GitHubAccess{Issuer: app, Host: app.Hosts().Git, APIURL: githubauth.DefaultAPIBaseURL, Source: api.SourceApp}
		c.Service.GitHub = &plan.GitHubService{Profiles: scope.DefaultProfiles(), AllowKey: allowKey}
		if allowKey {
			c.GitHub.Key = func() ([]byte, error) { return githubauth.ReadPEM(g.key) }
		}
	}
}

// fault makes something go wrong from now on, as a brokenness in JSON; "" ends that.
func (g *testGitHub) fault(fault string) {
	g.t.Helper()
	var b brokenness
	if fault != "" {
		d := json.NewDecoder(strings.NewReader(fault))
		d.DisallowUnknownFields()
		if err := d.Decode(&b); err != nil {
			g.t.Fatalf("fault %s: %v", fault, err)
		}
	}
	skew, _ := time.ParseDuration(b.Skew)
	life, _ := time.ParseDuration(b.TokenLife)
	g.mu.Lock()
	g.broken = b
	g.mu.Unlock()
	g.server.Lock()
	defer g.server.Unlock()
	g.server.Skew, g.server.Life, g.server.Change = skew, life, b.change
}

// states are those of all tokens, the oldest first.
func (g *testGitHub) states() []string { return g.server.States() }

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
			if records := filepath.Join(statedir.Audit(h.config.State), "records"); filepath.Dir(path) == records {
				places[path] = statements(h.t, text)
			}
		}
		return err
	})
	delete(places, filepath.Join(statedir.Audit(h.config.State), "key.pem")) // not GitHub's
	return places
}

// statements are those of a file of the audit log, out of their base64.
func statements(t testing.TB, records []byte) string {
	t.Helper()
	var text strings.Builder
	for line := range bytes.Lines(records) {
		var rec struct{ Envelope struct{ Payload []byte } }
		if err := json.Unmarshal(line, &rec); err != nil || len(rec.Envelope.Payload) == 0 {
			t.Errorf("an audit record cannot be read: %v", err)
		}
		text.Write(rec.Envelope.Payload)
	}
	return text.String()
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
	body := strings.Split(string(githubtest.KeyPEM()), "\n")[3]
	if text := string(sent) + h.log.String(); strings.Contains(text, body) || strings.Contains(text, "PRIVATE KEY-----") || strings.Contains(text, "eyJ") {
		h.t.Error("the App's key, or a JSON web token, went into a sandbox or the log")
	}
}
