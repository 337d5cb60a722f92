package compose_test

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"sallyport/executor/api"
)

// hub asks the control port of the demo's GitHub.
func hub(t *testing.T, method, path, body string) []byte {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, fmt.Sprintf("http://%s.10:7299/github/%s", lan, path), strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := st.web.Do(req)
	if err != nil {
		t.Fatalf("ask GitHub: %v", err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode >= 300 {
		t.Fatalf("GitHub's control answers %s %s, %v", resp.Status, answer, err)
	}
	return answer
}

// A hubToken is what GitHub knows of a token it has minted.
type hubToken struct {
	Hash, State  string
	Repositories []string
	Permissions  map[string]string
}

func hubTokens(t *testing.T) []hubToken {
	t.Helper()
	var all []hubToken
	if err := json.Unmarshal(hub(t, "GET", "tokens", ""), &all); err != nil {
		t.Fatal(err)
	}
	return all
}

// A hubRequest is one request that reached GitHub.
type hubRequest struct {
	Seq, Status               int
	Host, Method, Path, Token string
	Agent                     string
}

func hubRequests(t *testing.T) []hubRequest {
	t.Helper()
	var all []hubRequest
	if err := json.Unmarshal(hub(t, "GET", "requests", ""), &all); err != nil {
		t.Fatal(err)
	}
	return all
}

// onHub is a request for access to GitHub, with a script as its agent.
func onHub(access api.GithubAccess, script string) api.Request {
	req := bash("strict", script)
	req.Opts.GithubAccess = &access
	return req
}

// TestSavedToken: what an agent saved of its token is worth nothing once the run is
// over.
//
// probe: G6
// oracle: GitHub's answer, to a sandbox without access and to the host
func TestSavedToken(t *testing.T) {
	dir := callersDir(t, "saved")
	save := onHub(api.GithubAccess{Owner: "acme", Repo: "app", Profile: "repo-write"}, tools+`printf %s "$GITHUB_TOKEN" >/workspace/saved; url https://api.github.com/repos/acme/app && echo good
n=0; until [ -e /workspace/asked ]; do sleep 0.1; n=$((n+1)); [ $n -lt 600 ] || exit 9; done`)
	save.Config.CWD = dir
	id := begin(t, save)
	saved, err := os.ReadFile(filepath.Join(dir, "saved"))
	if err != nil {
		t.Fatal(err)
	}
	if status := askAsHost(t, string(saved)); status != http.StatusOK {
		t.Errorf("control: while the run lasts the host gets %d", status)
	}
	if err := os.WriteFile(filepath.Join(dir, "asked"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if res := finish(t, id); !res.Success || !strings.Contains(res.Output, "good") {
		t.Fatalf("control: %q, %+v", res.Output, res.Error)
	}
	if status := askAsHost(t, string(saved)); status != http.StatusUnauthorized {
		t.Errorf("the host gets %d, want 401", status)
	}
	use := bash("strict", `curl -sS -o /dev/null -w '%{http_code}\n' -H "Authorization: Bearer $(cat /workspace/saved)" https://api.github.com/repos/acme/app; env | grep -c GITHUB_TOKEN`)
	use.Config.CWD = dir
	res, _ := run(t, use)
	if res.Output != "401\n0\n" {
		t.Errorf("with the saved token: %q, want 401 and no token of its own", res.Output)
	}
}

// askAsHost asks GitHub for a repository as somebody on this machine who has a token.
func askAsHost(t *testing.T, token string) int {
	t.Helper()
	web := &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{
		DisableKeepAlives: true,
		TLSClientConfig:   &tls.Config{InsecureSkipVerify: true}, // whom it is about is known by his address
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, wan+".10:443")
		},
	}}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://api.github.com/repos/acme/app", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	resp, err := web.Do(req)
	if err != nil {
		t.Fatalf("ask GitHub: %v", err)
	}
	resp.Body.Close()
	return resp.StatusCode
}

// callersDir makes a directory that a request may name as its workspace.
func callersDir(t *testing.T, name string) string {
	t.Helper()
	dir, err := os.MkdirTemp(st.root, name)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(dir, 10001, 10001); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// TestExecutorKilledWithToken kills the executor in the middle of a run with a
// token; the next one revokes it.
//
// probe: L1, G6
// oracle: the state of the token at GitHub
func TestExecutorKilledWithToken(t *testing.T) {
	lost := begin(t, onHub(api.GithubAccess{Owner: "acme", Repo: "app", Profile: "repo-write"}, "echo begun; sleep 300"))
	live := func() (n int) {
		for _, token := range hubTokens(t) {
			if token.State == "live" {
				n++
			}
		}
		return n
	}
	if live() != 1 {
		t.Fatalf("control: %d tokens live", live())
	}
	id := container(t, "executor", "")
	docker(t, "kill", id)
	if live() != 1 {
		t.Errorf("control: %d tokens live after the kill", live())
	}
	docker(t, "start", id)
	ready(t)
	for deadline := time.Now().Add(time.Minute); live() != 0; time.Sleep(200 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the token is not revoked a minute after the executor's start")
		}
	}
	res := finish(t, lost)
	wantError(t, res, api.CodeLost)
	if r := res.Github; r == nil || r.Profile != "repo-write" || !r.Revoked && r.RevokeError == "" {
		t.Errorf("the result says of GitHub %+v", r)
	}
}

// TestTokensAreNotSwapped runs twenty at the same time, each with a profile and a
// repository of its own.
//
// probe: G9
// oracle: GitHub's log: which token each run's requests had
func TestTokensAreNotSwapped(t *testing.T) {
	const runs = 20
	repos := []string{"app", "lib", "site"}
	before := len(hubRequests(t))
	type ended struct {
		n   int
		res api.Result
	}
	results := make(chan ended, runs)
	var wg sync.WaitGroup
	for n := range runs {
		repo, profile := repos[n%len(repos)], profiles[n%len(profiles)]
		req := onHub(api.GithubAccess{Owner: "acme", Repo: repo, Profile: profile}, fmt.Sprintf(`for i in 1 2 3; do
curl -sS -A run-%d -H "Authorization: Bearer $GITHUB_TOKEN" https://api.github.com/installation/repositories | tr -d ' \n' | grep -o '"full_name":"[^"]*"'
sleep 0.3; done; GIT_HTTP_USER_AGENT=run-%d git ls-remote -q https://github.com/acme/%s.git HEAD | cut -f2`, n, n, repo))
		wg.Go(func() {
			res, _ := run(t, req)
			results <- ended{n, res}
		})
	}
	wg.Wait()
	close(results)
	for r := range results {
		want := strings.Repeat(fmt.Sprintf("\"full_name\":\"acme/%s\"\n", repos[r.n%len(repos)]), 3) + "HEAD\n"
		if !r.res.Success || r.res.Output != want || r.res.Github.Profile != profiles[r.n%len(profiles)] {
			t.Errorf("run %d: %q, %+v, want %q", r.n, r.res.Output, r.res.Error, want)
		}
	}
	tokens, agents := map[string]string{}, map[string]string{}
	for _, r := range hubRequests(t)[before:] {
		if !strings.HasPrefix(r.Agent, "run-") || r.Token == "" {
			continue
		}
		if other, ok := tokens[r.Agent]; ok && other != r.Token {
			t.Errorf("%s used two tokens", r.Agent)
		}
		if other, ok := agents[r.Token]; ok && other != r.Agent {
			t.Errorf("%s and %s used the same token", other, r.Agent)
		}
		tokens[r.Agent], agents[r.Token] = r.Token, r.Agent
	}
	if len(tokens) != runs {
		t.Errorf("GitHub saw the tokens of %d runs, want %d", len(tokens), runs)
	}
}

// TestTokenIsReplaced: git and gh go on with a fresh token in a run that is longer
// than a token's life, without a restart of the agent.
//
// oracle: GitHub, which has the first token expired
func TestTokenIsReplaced(t *testing.T) {
	hub(t, "PUT", "faults", `{"tokenLife":"24s"}`)
	defer hub(t, "DELETE", "faults", "")
	res, events := run(t, onHub(api.GithubAccess{Owner: "acme", Repo: "app", Profile: "read"}, tools+`
git ls-remote -q https://github.com/acme/app.git HEAD >/dev/null && echo before
n=0; while url https://api.github.com/repos/acme/app 2>/dev/null; do sleep 1; n=$((n+1)); [ $n -lt 90 ] || exit 9; done
echo expired; git ls-remote -q https://github.com/acme/app.git HEAD >/dev/null && echo git
gh api repos/acme/app --jq .full_name`))
	if !res.Success || res.Output != "before\nexpired\ngit\nacme/app\n" || res.Github.Refreshed == 0 || !res.Github.Revoked {
		t.Errorf("%q, %+v, receipt %+v\n%s", res.Output, res.Error, res.Github, text(events, api.EventStderr))
	}
}

// TestWorkspaceIsFilled: the branch is there before the agent starts, with history as
// far as the merge base, and no more than the profile allows can be done with it.
func TestWorkspaceIsFilled(t *testing.T) {
	access := api.GithubAccess{Owner: "acme", Repo: "app", Profile: "read", PrePopulateBranch: "feature", BaseBranch: "main"}
	res, events := run(t, onHub(access, `git rev-parse HEAD; git symbolic-ref --short HEAD; git merge-base HEAD origin/main >/dev/null && echo base; git status --porcelain | wc -l
grep -rc ghs_ .git/config; git push -q origin HEAD:refs/heads/injected 2>&1 | grep -o 403 | head -1`))
	if !res.Success || res.Output != res.Github.Commit+"\nfeature\nbase\n0\n0\n403\n" || len(res.Github.Commit) != 40 || res.Github.Checkout != api.CheckoutDone {
		t.Errorf("%q, %+v, receipt %+v\n%s%s", res.Output, res.Error, res.Github, text(events, api.EventStderr), text(events, api.EventWarning))
	}

	// A branch that no one has, of a repository that is not there.
	access.Profile, access.PrePopulateBranch, access.BaseBranch = "repo-write", "fix/new", "main"
	res, _ = run(t, onHub(access, `git symbolic-ref --short HEAD; git commit -q --allow-empty -m mine && git push -q -u origin HEAD && git log -1 --format='%an <%ae>'`))
	if !res.Success || !strings.HasPrefix(res.Output, "fix/new\nsallyport-demo[bot] <") || res.Github.Checkout != api.CheckoutDone {
		t.Errorf("%q, %+v, receipt %+v", res.Output, res.Error, res.Github)
	}
	access.BaseBranch, access.PrePopulateBranch = "nosuch", "fix/newer"
	res, events = run(t, onHub(access, `ls -A | wc -l`))
	if !res.Success || res.Output != "0\n" || res.Github.Checkout != api.CheckoutFailed || !strings.Contains(text(events, api.EventWarning), "nosuch") {
		t.Errorf("%q, receipt %+v, %s", res.Output, res.Github, text(events, api.EventWarning))
	}
}

// TestCredentialStaysHome: a submodule on another host that the policy allows is
// asked for without a credential.
//
// probe: G8
// oracle: the other host, which notes the scheme of each credential
func TestCredentialStaysHome(t *testing.T) {
	before := lastHit(t)
	res, events := run(t, onHub(api.GithubAccess{Owner: "acme", Repo: "app", Profile: "repo-write"},
		`git clone -q --recurse-submodules https://github.com/acme/app.git app; ls app/vendor/hello`))
	if !res.Success || !strings.Contains(res.Output, "README") {
		t.Errorf("%q, %+v, %s", res.Output, res.Error, text(events, api.EventStderr))
	}
	asked := 0
	for _, h := range hits(t, before) {
		if h.Kind == "https" && !strings.HasSuffix(h.Name, "github.com") {
			asked++
			if h.Auth != "" {
				t.Errorf("%s %s came with a credential of scheme %s", h.Name, h.Detail, h.Auth)
			}
		}
	}
	if asked == 0 {
		t.Error("control: the other host was not asked")
	}
}

// TestEnterpriseServer does the same on a GitHub Enterprise Server of another name.
//
// oracle: the server, which knows the token by its own name only
func TestEnterpriseServer(t *testing.T) {
	reconfigure(t, `SALLYPORT_GITHUB_API_URL: "https://ghes.docs.example/api/v3/"`)
	access := api.GithubAccess{Owner: "acme", Repo: "app", Profile: "issues-write", PrePopulateBranch: "main", Shallow: true}
	res, events := run(t, onHub(access, `git remote get-url origin; git ls-remote -q git@ghes.docs.example:acme/app.git HEAD | cut -f2
gh issue comment 1 -b "by an enterprise" >/dev/null && echo commented; git push -q origin HEAD:refs/heads/x 2>&1 | grep -o 403 | head -1
git ls-remote https://github.com/acme/app.git 2>&1 | grep -o 'could not read Username' | head -1`))
	want := "https://ghes.docs.example/acme/app.git\nHEAD\ncommented\n403\ncould not read Username\n"
	if !res.Success || res.Output != want || !res.Github.Revoked {
		t.Errorf("%q, %+v, %s%s", res.Output, res.Error, text(events, api.EventStderr), text(events, api.EventWarning))
	}
}
