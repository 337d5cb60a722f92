package executor_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"sallyport/compose/internet/github"
	"sallyport/executor"
	"sallyport/executor/api"
	"sallyport/executor/plan"
	"sallyport/firewall"
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
}

func startGitHub(t testing.TB) *testGitHub {
	t.Helper()
	server, err := github.New(t.Context(), github.Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	cert, roots := certificate(t, github.Hosts)
	front := httptest.NewUnstartedServer(server)
	front.TLS = &tls.Config{Certificates: []tls.Certificate{cert}}
	front.StartTLS()
	g := &testGitHub{
		t: t, server: server, control: httptest.NewServer(server.Control()),
		addr: front.Listener.Addr().String(), roots: roots, key: filepath.Join(t.TempDir(), "app.pem"),
	}
	t.Cleanup(func() { front.Close(); g.control.Close() })
	if err := os.WriteFile(g.key, server.KeyPEM(), 0o600); err != nil {
		t.Fatal(err)
	}
	return g
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
		c.GitHub = &executor.GitHub{Issuer: app, APIURL: githubauth.DefaultAPIBaseURL, Source: api.SourceApp}
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

// TestGitHubToken follows a token from its mint to its end, through a run that prints
// it in several ways.
//
// probe: G1, G7, G10
// oracle: GitHub's list of tokens, and every file and answer that the run has left
func TestGitHubToken(t *testing.T) {
	g := startGitHub(t)
	h := start(t, g.access(false))
	script := `echo "token $GITHUB_TOKEN"; echo "$GH_TOKEN" | cut -c1-30; printf 'x-access-token:%s' "$GIT_TOKEN" | base64 -w0; echo; env | grep -c ` + "'^GIT.*TOKEN='" + `; echo "fatal: $GITHUB_TOKEN" >&2; exit 3`
	id := h.begin(with(command(script), readAccess))
	res := h.finish(id)
	wantCode(t, res, api.CodeCommandFailed)
	want := api.GithubReceipt{Profile: "read", Owner: "acme", Source: "app", Downscoped: true, Revoked: true}
	got := *res.Github
	if got.Profile != want.Profile || got.Owner != want.Owner || !slices.Equal(got.Repositories, []string{"app"}) || got.Source != want.Source ||
		!got.Downscoped || !got.Revoked || got.AppKey || got.ExpiresAt == nil || got.Permissions["contents"] != "read" || len(got.Permissions) != 4 {
		t.Errorf("receipt %+v", got)
	}
	if res.Timings.Token < res.Timings.Queue || res.Timings.Cell < res.Timings.Token {
		t.Errorf("timings %+v", res.Timings)
	}
	if got := g.states(); !slices.Equal(got, []string{"revoked"}) {
		t.Errorf("tokens are %v", got)
	}
	token, _ := h.variable("GITHUB_TOKEN")
	if !strings.HasPrefix(token, "ghs_") {
		t.Fatalf("the job's token is %q", token)
	}
	for _, name := range []string{"GH_TOKEN", "GIT_TOKEN"} {
		if v, _ := h.variable(name); v != token {
			t.Errorf("%s is another token", name)
		}
	}
	if v, _ := h.variable("GIT_AUTHOR_NAME"); v != "sallyport-demo[bot]" {
		t.Errorf("commits are by %q", v)
	}
	if v, ok := h.variable("GITHUB_APP_PRIVATE_KEY_PATH"); !ok || v != "" {
		t.Errorf("the key's path is %q", v)
	}
	h.wantNowhere(id, token)
	h.wantNoKey(g)
	h.wantClean()
}

// wantNowhere checks that no place that outlives a run, or that its caller sees,
// tells a token, nor most of it.
func (h *harness) wantNowhere(id, token string) {
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

// TestGitHubKey: the App's private key enters where request, profile and service
// all say so, in one file.
func TestGitHubKey(t *testing.T) {
	g := startGitHub(t)
	const wanted = `{"owner":"acme","repo":"app","profile":"PROFILE","allowMcpAppAuth":true}`
	refused := func(h *harness, access, want string) {
		t.Helper()
		resp, data := h.do(http.MethodPost, "/v1/executions", with(command("true"), access))
		p := decode[api.Problem](t, resp, data, http.StatusUnprocessableEntity)
		if p.Code != api.CodeCapability || !strings.Contains(p.Detail, want) {
			t.Errorf("%s: %+v", access, p)
		}
	}
	h := start(t, g.access(false))
	refused(h, strings.Replace(wanted, "PROFILE", "repo-write", 1), "gives the App's private key to nobody")
	refused(h, strings.Replace(wanted, "PROFILE", "read", 1), "does not allow the App's private key")

	h = start(t, g.access(true))
	refused(h, strings.Replace(wanted, "PROFILE", "review-write", 1), "does not allow the App's private key")
	if len(g.states()) != 0 {
		t.Error("a refused run has minted a token")
	}
	res := h.post(with(command("true"), `{"owner":"acme","repo":"app","profile":"repo-write"}`))
	if !res.Success || res.Github.AppKey {
		t.Errorf("without a wish: %+v", res)
	}
	h.wantNoKey(g)

	h = start(t, g.access(true))
	id := h.begin(with(command(`stat -c %a "$GITHUB_APP_PRIVATE_KEY_PATH"; cat "$GITHUB_APP_PRIVATE_KEY_PATH"`), strings.Replace(wanted, "PROFILE", "repo-write", 1)))
	res = h.finish(id)
	if !res.Success || !res.Github.AppKey || !strings.HasPrefix(res.Output, "400\n-----BEGIN") {
		t.Errorf("with all three: %+v, %v", res, res.Error)
	}
	for i, line := range strings.Split(strings.TrimSpace(string(g.server.KeyPEM())), "\n") {
		if _, events := h.do(http.MethodGet, "/v1/executions/"+id+"/events", ""); !strings.HasPrefix(line, "-----") && strings.Contains(string(events)+h.log.String(), line) {
			t.Fatalf("line %d of the key is on record", i)
		}
	}
	warned := false
	for _, ev := range h.events(id, "") {
		warned = warned || ev.Type == api.EventWarning && strings.Contains(ev.Text, "private key is in the sandbox")
	}
	if !warned || !strings.Contains(h.log.String(), `"appKey":true`) {
		t.Error("it is not on record that the key went in")
	}
	for _, e := range h.backend.jobs[0].Env {
		if strings.Contains(e, "BEGIN") {
			t.Error("the key is in the environment")
		}
	}
}

// TestGitHubTokenFails: each fault is a clear code, and nothing was started.
//
// probe: G2
// oracle: GitHub's list of tokens, and the backend, which has started nothing
func TestGitHubTokenFails(t *testing.T) {
	g := startGitHub(t)
	for _, tt := range []struct {
		name, access, fault, reason string
		states                      []string // of the tokens that were minted meanwhile
	}{
		{"answer is not GitHub's", readAccess, `{"only":"mint","status":403,"body":"no"}`, "not_permitted", nil},
		{"wider permissions", readAccess, `{"scope":"wider-permissions"}`, "wider_scope", []string{"revoked"}},
		{"wider repositories", readAccess, `{"scope":"wider-repositories"}`, "wider_scope", []string{"revoked"}},
		{"narrower", readAccess, `{"scope":"narrower-permissions"}`, "narrower_scope", []string{"revoked"}},
		{"a repository that was not chosen", `{"owner":"acme","repo":"vault","profile":"read"}`, `{}`, "not_permitted", nil},
		{"an owner without the App", `{"owner":"other","repo":"hidden","profile":"read"}`, `{}`, "not_installed", nil},
		{"clock", readAccess, `{"skew":"-2h"}`, "clock", nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := start(t, g.access(false))
			before := len(g.states())
			g.fault(tt.fault)
			defer g.fault("")
			res := h.post(with(command("true"), tt.access))
			wantCode(t, res, api.CodeGithubToken)
			if res.Error.Details["reason"] != tt.reason || res.Timings.Token != -1 || res.Github != nil {
				t.Errorf("%+v, timings %+v, receipt %+v", res.Error, res.Timings, res.Github)
			}
			if len(h.backend.specs) != 0 || res.Timings.Cell != -1 {
				t.Error("a sandbox was started")
			}
			if got := g.states()[before:]; !slices.Equal(got, tt.states) {
				t.Errorf("tokens %v, want %v", got, tt.states)
			}
			h.wantClean()
		})
	}
	h := start(t, g.access(false))
	if res := h.post(with(command("true"), readAccess)); !res.Success {
		t.Errorf("control: %+v", res.Error)
	}
}

// TestGitHubRefresh: a run that is longer than its token's life gets fresh ones
// without a restart, and leaves none of them alive.
func TestGitHubRefresh(t *testing.T) {
	g := startGitHub(t)
	g.fault(`{"tokenLife":"6s"}`)
	h := start(t, g.access(false))
	script := `first=$(cat "${GIT_CONFIG_SYSTEM%/*}/token"); n=0
while [ "$(cat "${GIT_CONFIG_SYSTEM%/*}/token")" = "$first" ]; do sleep 0.1; n=$((n+1)); [ $n -lt 400 ] || exit 9; done
cat "${GIT_CONFIG_SYSTEM%/*}/token"; echo; [ "$GITHUB_TOKEN" = "$first" ] && echo changed`
	res := h.post(with(command(script), readAccess))
	if !res.Success || !strings.Contains(res.Output, "[GITHUB_TOKEN redacted]\nchanged\n") {
		t.Fatalf("%+v, %v", res, res.Error)
	}
	if res.Github.Refreshed == 0 || !res.Github.Revoked {
		t.Errorf("receipt %+v", res.Github)
	}
	g.fault("")
	states := g.states()
	if len(states) < 2 || slices.Contains(states, "live") {
		t.Errorf("tokens are %v", states)
	}
	h.wantClean()
}

// TestGitHubDeliveryFails: a sandbox that keeps fresh tokens from being put into it
// has none minted beyond those that its time takes, and gets the last one once it
// lets it in.
//
// probe: X23
// oracle: GitHub's list of tokens, and the records of those that may live
func TestGitHubDeliveryFails(t *testing.T) {
	g := startGitHub(t)
	const life = 4 * time.Second
	g.fault(`{"tokenLife":"4s"}`)
	h := start(t, g.access(false))
	began := time.Now()
	id := h.begin(with(command(`d="${GIT_CONFIG_SYSTEM%/*}"; rm -rf "$d"; touch "$d"; sleep 10; echo broken; rm "$d"; mkdir "$d"
n=0; until [ -s "$d/token" ]; do sleep 0.1; n=$((n+1)); [ $n -lt 300 ] || exit 9; done; cat "$d/token"`), readAccess))
	h.awaitText(id, "broken")
	left, err := os.ReadDir(filepath.Join(h.config.State, "tokens"))
	if err != nil || len(left) > 3 {
		t.Errorf("%d records, %v", len(left), err)
	}
	res := h.finish(id)
	minted, most := len(g.states()), 2+int(time.Since(began)/(life*3/4))
	if minted < 3 || minted > most {
		t.Errorf("%d tokens were minted, want 3 to %d", minted, most)
	}
	if !res.Success || !strings.Contains(res.Output, "[GITHUB_TOKEN redacted]") || res.Github.Refreshed == 0 || !res.Github.Revoked {
		t.Errorf("%+v, %v, receipt %+v", res, res.Error, res.Github)
	}
	g.fault("")
	if states := g.states(); slices.Contains(states, "live") {
		t.Errorf("tokens are %v", states)
	}
	warned := 0
	for _, ev := range h.events(id, "") {
		if ev.Type == api.EventWarning && strings.Contains(ev.Text, "could not be replaced") {
			warned++
		}
	}
	if warned < 2 {
		t.Errorf("%d warnings", warned)
	}
	h.wantClean()
}

// TestGitHubShutdown: an executor that is told to end while GitHub does not answer puts
// the run's end on record all the same, and the next one revokes its tokens.
//
// oracle: the result on record, and the state of the tokens at GitHub
func TestGitHubShutdown(t *testing.T) {
	g := startGitHub(t)
	h := start(t, g.access(false))
	id := h.begin(with(command("echo begun; sleep 60"), readAccess))
	h.awaitText(id, "begun")
	g.fault(`{"only":"revoke","delay":"60s"}`)
	h.end()
	if states := g.states(); !slices.Equal(states, []string{"live"}) {
		t.Errorf("control: tokens are %v", states)
	}
	g.fault("")
	h.boot()
	defer h.end()
	x := get[api.Execution](h, "/v1/executions/"+id)
	wantCode(t, *x.Result, api.CodeCancelled)
	if r := x.Result.Github; r == nil || r.Revoked || r.RevokeError == "" {
		t.Errorf("receipt %+v", r)
	}
	if states := g.states(); !slices.Equal(states, []string{"revoked"}) {
		t.Errorf("tokens are %v", states)
	}
	h.wantClean()
}

// TestGitHubRevokedLater: a token that could not be revoked at the end of its run
// is told of, and revoked by the next executor.
func TestGitHubRevokedLater(t *testing.T) {
	g := startGitHub(t)
	h := start(t, g.access(false))
	g.fault(`{"only":"revoke","status":403,"body":"{}"}`)
	res := h.post(with(command("true"), readAccess))
	if !res.Success || res.Github.Revoked || res.Github.RevokeError == "" {
		t.Errorf("receipt %+v", res.Github)
	}
	h.end()
	if states := g.states(); !slices.Equal(states, []string{"live"}) {
		t.Fatalf("control: tokens are %v", states)
	}
	g.fault("")
	h.boot()
	deadline := time.Now().Add(30 * time.Second)
	for !slices.Equal(g.states(), []string{"revoked"}) {
		if time.Now().After(deadline) {
			t.Fatalf("tokens are %v", g.states())
		}
		time.Sleep(20 * time.Millisecond)
	}
	h.end()
	if left, err := os.ReadDir(filepath.Join(h.config.State, "tokens")); err != nil || len(left) != 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

// leftToken makes an executor that ends with one token that it could not revoke.
func leftToken(t *testing.T, g *testGitHub) *harness {
	t.Helper()
	h := start(t, g.access(false))
	g.fault(`{"only":"revoke","status":403,"body":"{}"}`)
	defer g.fault("")
	h.post(with(command("true"), readAccess))
	h.end()
	if states := g.states(); !slices.Equal(states, []string{"live"}) {
		t.Fatalf("control: tokens are %v", states)
	}
	return h
}

// TestGitHubRevokedWithoutEngine: an executor that cannot start for want of an engine
// revokes all the same what the last one left.
//
// probe: L1
// oracle: the state of the token at GitHub
func TestGitHubRevokedWithoutEngine(t *testing.T) {
	g := startGitHub(t)
	h := leftToken(t, g)
	h.config.Boot = func(context.Context) (map[string]firewall.Receipt, error) {
		if states := g.states(); !slices.Equal(states, []string{"revoked"}) {
			t.Errorf("when the engine is asked, tokens are %v", states)
		}
		return nil, errTest
	}
	if _, err := executor.New(h.config); !errors.Is(err, errTest) {
		t.Fatalf("it starts: %v", err)
	}
	if states := g.states(); !slices.Equal(states, []string{"revoked"}) {
		t.Errorf("tokens are %v", states)
	}
}

// TestGitHubRevokeLeft: the same for one that has not come as far as New, but never
// beside one that runs.
func TestGitHubRevokeLeft(t *testing.T) {
	g := startGitHub(t)
	h := leftToken(t, g)
	if err := executor.RevokeLeft(h.config.State, nil, h.config.Log); err != nil || !strings.Contains(h.log.String(), "cannot be revoked with the settings") {
		t.Errorf("without access to GitHub: %v, %s", err, h.log)
	}
	if err := executor.RevokeLeft(h.config.State, h.config.GitHub, h.config.Log); err != nil {
		t.Error(err)
	}
	if states := g.states(); !slices.Equal(states, []string{"revoked"}) {
		t.Errorf("tokens are %v", states)
	}
	h.boot()
	defer h.end()
	id := h.begin(with(command("echo begun; sleep 60"), readAccess))
	h.awaitText(id, "begun")
	if err := executor.RevokeLeft(h.config.State, h.config.GitHub, h.config.Log); err == nil || !slices.Equal(g.states(), []string{"revoked", "live"}) {
		t.Errorf("beside one that runs: %v, tokens are %v", err, g.states())
	}
}

// TestGitHubCheckoutIsBestEffort: without a way to the repository the run goes on
// with an empty workspace, and says why.
func TestGitHubCheckoutIsBestEffort(t *testing.T) {
	g := startGitHub(t)
	h := start(t, g.access(false))
	id := h.begin(with(command("ls -A | wc -l", `"timeoutMs":60000`), `{"owner":"acme","repo":"app","profile":"read","prePopulateBranch":"feature","baseBranch":"main"}`))
	res := h.finish(id)
	if !res.Success || res.Output != "0\n" || res.Github.Checkout != api.CheckoutFailed {
		t.Fatalf("%+v, receipt %+v, %v", res, res.Github, res.Error)
	}
	var stages []string
	warned := false
	for _, ev := range h.events(id, "") {
		if ev.Type == api.EventStage {
			stages = append(stages, ev.Stage)
		}
		warned = warned || ev.Type == api.EventWarning && strings.Contains(ev.Text, "the workspace could not be filled")
	}
	if want := []string{"queue", "token", "cell", "start", "ready", "checkout", "running", "teardown"}; !slices.Equal(stages, want) || !warned {
		t.Errorf("stages %v, warned %v", stages, warned)
	}
	spec := h.backend.jobs[0]
	if !slices.Equal(spec.Argv, []string{"/sallyport/entrypoint", "checkout"}) || slices.ContainsFunc(spec.Env, func(e string) bool { return strings.Contains(e, secretKey) }) {
		t.Errorf("the checkout's job: %q, or it has a provider's key", spec.Argv)
	}
}

// TestGitHubCheckoutHangs: a sandbox that does not react any more while its workspace
// is filled does not keep its run from ending.
//
// probe: X25
// oracle: the result, and the state of the token at GitHub
func TestGitHubCheckoutHangs(t *testing.T) {
	const access = `{"owner":"acme","repo":"app","profile":"read","prePopulateBranch":"main"}`
	g := startGitHub(t)
	for _, tt := range []struct {
		name, timeout string
		cancel        bool
		want          api.Code
	}{
		{"cancelled", "600000", true, api.CodeCancelled},
		{"late", "3000", false, api.CodeTimeout},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := start(t, g.access(false))
			h.backend.set(func(b *processBackend) { b.git = []string{"sleep", "30"} })
			id := h.begin(with(command("true", `"timeoutMs":`+tt.timeout), access))
			h.await(id, func(ev api.Event) bool { return ev.Stage == "checkout" })
			var pid int
			h.backend.set(func(b *processBackend) { pid = b.last.cmd.Process.Pid })
			if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
				t.Fatal(err)
			}
			if tt.cancel {
				h.do(http.MethodDelete, "/v1/executions/"+id, "")
			}
			for deadline := time.Now().Add(40 * time.Second); get[api.Execution](h, "/v1/executions/"+id).State != api.StateFinished; time.Sleep(50 * time.Millisecond) {
				if time.Now().After(deadline) {
					syscall.Kill(pid, syscall.SIGKILL)
					t.Fatal("the run does not end")
				}
			}
			wantCode(t, h.finish(id), tt.want)
			if states := g.states(); slices.Contains(states, "live") {
				t.Errorf("tokens are %v", states)
			}
			h.wantClean()
		})
	}
}

func TestGitHubCapabilities(t *testing.T) {
	g := startGitHub(t)
	h := start(t, g.access(true))
	c := get[api.Capabilities](h, "/v1/capabilities")
	if c.Github == nil || c.Github.Host != "github.com" || !c.Github.AppKey || c.Github.Source != "app" ||
		!slices.Equal(c.Github.Profiles, []string{"issues-write", "read", "repo-write", "review-write"}) {
		t.Errorf("capabilities %+v", c.Github)
	}
	if c := get[api.Capabilities](start(t), "/v1/capabilities"); c.Github != nil {
		t.Errorf("without an App: %+v", c.Github)
	}
}
