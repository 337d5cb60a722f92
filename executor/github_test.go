package executor_test

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"sallyport/executor"
	"sallyport/executor/api"
	"sallyport/executor/tokens"
	"sallyport/githubauth"
	"sallyport/githubauth/githubtest"
	"sallyport/githubauth/scope"
)

// TestGitHubToken follows a token from its mint to its end, through a run that prints
// it in several ways.
//
// probe: G1, G7, G10
// oracle: the body of the request for the token, GitHub's list of tokens, and every
// file and answer that the run has left
func TestGitHubToken(t *testing.T) {
	g := startGitHub(t)
	h := start(t, g.access(false))
	for _, wide := range []string{`{"owner":"acme","profile":"read"}`, `{"owner":"acme","repo":"app"}`, `{"owner":"acme","repositories":[],"profile":"read"}`} {
		resp, data := h.do(http.MethodPost, "/v1/executions", with(command("true"), wide))
		if p := decode[api.Problem](t, resp, data, http.StatusUnprocessableEntity); !strings.Contains(p.Detail, "githubAccess") {
			t.Errorf("%s: %+v", wide, p)
		}
	}
	g.wantAsked()
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
	g.wantAsked(`{"repositories":["app"],"permissions":{"contents":"read","issues":"read","metadata":"read","pull_requests":"read"}}`)
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
	for i, line := range strings.Split(strings.TrimSpace(string(githubtest.KeyPEM())), "\n") {
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

// A hurried issuer is one whose patience is a test's.
type hurried struct{ tokens.Issuer }

func (h hurried) Mint(ctx context.Context, g scope.Grant) (githubauth.Token, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	return h.Issuer.Mint(ctx, g)
}

// TestGitHubTokenFails: each fault is a clear code; nothing was started, and what there
// is to read tells neither a token nor the key.
//
// probe: G2, G10
// oracle: GitHub's list of tokens, the backend, which has started nothing, and a search
// of all that the run has left
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
		{"no answer", readAccess, `{"only":"mint","delay":"60s"}`, "timeout", nil},
		{"no answer to the first question", readAccess, `{"only":"app","delay":"60s"}`, "timeout", nil},
		{"a failure", readAccess, `{"only":"mint","status":500,"body":"<html>"}`, "server", nil},
		{"half an answer", readAccess, `{"only":"mint","truncate":true}`, "malformed", []string{"live"}}, // in the half that got lost: nobody has it
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := start(t, g.access(false), func(c *executor.Config) {
				if tt.reason == "timeout" { // a failure is tried again, which takes its time
					c.GitHub.Issuer = hurried{c.GitHub.Issuer}
				}
			})
			before := len(g.states())
			g.fault(tt.fault)
			defer g.fault("")
			id := h.begin(with(command("true"), tt.access))
			res := h.finish(id)
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
			for place, text := range h.places(id) {
				for _, secret := range []string{"ghs_", "eyJ", "PRIVATE KEY-----", strings.Split(string(githubtest.KeyPEM()), "\n")[3]} {
					if strings.Contains(text, secret) {
						t.Errorf("%s holds %q", place, secret)
					}
				}
			}
			h.wantClean()
		})
	}
	h := start(t, g.access(false))
	if res := h.post(with(command("true"), readAccess)); !res.Success {
		t.Errorf("control: %+v", res.Error)
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
