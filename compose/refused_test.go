package compose_test

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"sallyport/executor/api"
)

func TestRefusedBeforeAnythingStarts(t *testing.T) {
	sandboxes := func() string {
		return docker(t, "ps", "-aq", "--filter", "label=org.sallyport.stack="+stackName, "--filter", "label=org.sallyport.role=sandbox")
	}
	before := sandboxes()
	pi := func(model string) api.Request { return api.Request{Prompt: "hello", Config: api.Config{Model: model}} }
	with := func(change func(*api.Request)) api.Request {
		r := bash("strict", "true")
		change(&r)
		return r
	}
	for name, c := range map[string]struct {
		req  api.Request
		code api.Code
		says string
	}{
		"unknown model":      {pi("anthropic/claude-nonsense-9"), api.CodeInvalidRequest, "model"},
		"unknown provider":   {pi("acme/model"), api.CodeInvalidRequest, "acme"},
		"missing key":        {pi("openai/gpt-5"), api.CodeInvalidRequest, "OPENAI_API_KEY"},
		"empty prompt":       {with(func(r *api.Request) { r.Prompt = " " }), api.CodeInvalidRequest, "prompt"},
		"cwd outside":        {with(func(r *api.Request) { r.Config.CWD = "/etc" }), api.CodeInvalidRequest, "cwd"},
		"cwd with dots":      {with(func(r *api.Request) { r.Config.CWD = st.root + "/../state" }), api.CodeInvalidRequest, "cwd"},
		"unknown policy":     {with(func(r *api.Request) { r.Config.Egress = "lenient" }), api.CodePolicyDenied, "lenient"},
		"unknown agent":      {with(func(r *api.Request) { r.Config.Agent = "clippy" }), api.CodeInvalidRequest, "clippy"},
		"unoffered backend":  {with(func(r *api.Request) { r.Config.Sandbox = "none" }), api.CodeCapability, "none"},
		"unoffered services": {with(func(r *api.Request) { r.Config.Services = json.RawMessage(`["db"]`) }), api.CodeCapability, "services"},
		"unknown profile": {with(func(r *api.Request) {
			r.Opts.GithubAccess = &api.GithubAccess{Owner: "acme", Repo: "app", Profile: "admin"}
		}), api.CodeInvalidRequest, "repo-write"},
		"the App's key": {with(func(r *api.Request) {
			r.Opts.GithubAccess = &api.GithubAccess{Owner: "acme", Repo: "app", Profile: "repo-write", AllowMcpAppAuth: true}
		}), api.CodeCapability, "private key"},
	} {
		t.Run(name, func(t *testing.T) {
			var problem *api.Problem
			for _, err := range st.Execute(t.Context(), c.req) {
				if !errors.As(err, &problem) {
					t.Fatalf("got %v, want a problem", err)
				}
			}
			if problem == nil || problem.Code != c.code || !strings.Contains(problem.Detail, c.says) || problem.Status < 400 || problem.Status > 499 {
				t.Errorf("got %+v, want %s and %q in the detail", problem, c.code, c.says)
			}
		})
	}
	t.Run("unknown field", func(t *testing.T) {
		wantProblem(t, `{"prompt": "hello", "config": {"unrestrictedEgres": true}}`, "", 400, "unrestrictedEgres")
	})
	t.Run("wrong token", func(t *testing.T) { wantProblem(t, `{"prompt": "hello"}`, "wrong", 401, "token") })
	if after := sandboxes(); after != before {
		t.Errorf("sandboxes before: %q, after: %q", before, after)
	}
}

// wantProblem posts a body with the token, or the right one, and wants a problem.
func wantProblem(t *testing.T, body, token string, status int, says string) {
	t.Helper()
	if token == "" {
		var err error
		if token, err = st.token(); err != nil {
			t.Fatal(err)
		}
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://127.0.0.1:"+stackPort+"/v1/executions", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode != status || resp.Header.Get("Content-Type") != "application/problem+json" || !strings.Contains(string(b), says) {
		t.Errorf("answer %d %s %s, want %d application/problem+json with %q", resp.StatusCode, resp.Header.Get("Content-Type"), b, status, says)
	}
}
