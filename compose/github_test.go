package compose_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
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

// operations are what a token may be used for, each a line of shell, and who may:
// the letters of read, issues-write, review-write and repo-write whose profile has
// it succeed, and what the others are told.
var operations = []struct {
	name, script, may, otherwise string
}{
	{"clone", `git clone -q https://github.com/acme/app.git "$W/clone"`, "rivw", ""},
	{"clone by ssh's address", `git clone -q git@github.com:acme/app.git "$W/ssh"`, "rivw", ""},
	{"fetch", `git -C "$W/clone" fetch -q origin feature`, "rivw", ""},
	{"push", `cd "$W/clone" && git checkout -q -b "p-$P" && echo "$P" >by && git add by && git commit -q -m "by $P" && git push -q origin "p-$P" "p-$P:q-$P"`, "w", "403"},
	{"push a workflow", `cd "$W/clone" && git checkout -q -b "y-$P" origin/main && mkdir -p .github/workflows && echo "on: push # $P" >.github/workflows/x.yml && git add . && git commit -q -m w && git push -q origin "y-$P"`, "", "403|refusing to allow"},
	{"open an issue with gh", `cd "$W/clone" && gh issue create -t "by $P" -b text`, "ivw", "not accessible"},
	{"comment on an issue with gh", `cd "$W/clone" && gh issue comment 1 -b "by $P"`, "ivw", "not accessible"},
	{"view a pull request with gh", `cd "$W/clone" && gh pr view 2 --json title`, "rivw", ""},
	{"open an issue", `rest POST issues '{"title":"t"}'`, "ivw", "403"},
	{"open a pull request", `rest POST pulls "{\"title\":\"t\",\"head\":\"$HEAD\",\"base\":\"main\"}"`, "vw", "403"},
	{"review", `rest POST pulls/2/reviews '{"event":"COMMENT","body":"b"}'`, "vw", "403"},
	{"write a file", `rest PUT contents/"$P.txt" "{\"message\":\"m\",\"content\":\"eA==\",\"branch\":\"main\"}"`, "w", "403"},
	{"merge", `rest PUT pulls/2/merge '{}'`, "w", "403"},
	{"release", `rest POST releases "{\"tag_name\":\"v-$P\"}"`, "w", "403"},
	{"edit settings", `rest PATCH '' '{"has_wiki":false}'`, "", "403"},
	{"read another repository of the installation", `url https://api.github.com/repos/acme/lib`, "", "404"},
	{"clone another repository of the installation", `git clone -q https://github.com/acme/lib.git "$W/lib"`, "", "could not read Username"},
	{"clone it with the token all the same", `git clone -q "https://x-access-token:$GITHUB_TOKEN@github.com/acme/lib.git" "$W/lib"`, "", "not found|404"},
	{"read a repository of another owner", `url https://api.github.com/repos/other/hidden`, "", "404"},
	{"list what the token sees", `curl -sS -H "Authorization: Bearer $GITHUB_TOKEN" https://api.github.com/installation/repositories | grep -q '"total_count": *1[^0-9]'`, "rivw", ""},
}

// tools are the functions that operations use. HEAD is a branch that the profile can
// open a pull request from.
const tools = `
W=/tmp/w; mkdir -p $W; export GIT_TERMINAL_PROMPT=0
url() { code=$(curl -sS -o /tmp/body -w '%{http_code}' -H "Authorization: Bearer $GITHUB_TOKEN" "$@"); [ "$code" -lt 300 ] || { echo "$code $(cat /tmp/body)" >&2; return 1; }; }
rest() { url -X "$1" -d "$3" "https://api.github.com/repos/acme/app${2:+/$2}"; }
`

var profiles = []string{"read", "issues-write", "review-write", "repo-write"}

// TestProfiles is the table of profile and operation with real git, gh and curl in
// sandboxes. GitHub's server decides, not a tool of ours.
//
// probe: G3, G4, G5
// oracle: GitHub's own answers, and what its log has of each request
func TestProfiles(t *testing.T) {
	for _, profile := range []string{"repo-write", "review-write", "issues-write", "read"} { // the first makes branches
		t.Run(profile, func(t *testing.T) {
			letter := map[string]string{"read": "r", "issues-write": "i", "review-write": "v", "repo-write": "w"}[profile]
			var script strings.Builder
			head := "q-repo-write" // no pull request of which is open yet
			if letter == "w" {
				head = "p-repo-write"
			}
			fmt.Fprintf(&script, "%s\nP=%s; HEAD=%s\n", tools, profile, head)
			for n, op := range operations {
				fmt.Fprintf(&script, "if ( %s ) >/tmp/out 2>&1; then echo %d yes; else echo \"%d no $(tr '\\n' ' ' </tmp/out | head -c 600)\"; fi\n", op.script, n, n)
			}
			res, events := run(t, onHub(api.GithubAccess{Owner: "acme", Repo: "app", Profile: profile}, script.String()))
			if !res.Success {
				t.Fatalf("%+v\n%s", res.Error, text(events, api.EventStderr))
			}
			lines := strings.Split(strings.TrimSpace(res.Output), "\n")
			if len(lines) != len(operations) {
				t.Fatalf("%d lines for %d operations: %s", len(lines), len(operations), res.Output)
			}
			for n, op := range operations {
				got, said, _ := strings.Cut(strings.TrimPrefix(lines[n], fmt.Sprint(n, " ")), " ")
				may := strings.Contains(op.may, letter)
				if (got == "yes") != may {
					t.Errorf("%s: %s, want %v: %s", op.name, got, may, said)
				}
				if !may && !slices.ContainsFunc(strings.Split(op.otherwise, "|"), func(s string) bool { return strings.Contains(said, s) }) {
					t.Errorf("%s is refused by %q, want %q", op.name, said, op.otherwise)
				}
			}
			if r := res.Github; r == nil || r.Profile != profile || !r.Downscoped || !r.Revoked || r.AppKey {
				t.Errorf("receipt %+v", r)
			}
		})
	}
	for _, token := range hubTokens(t) {
		if token.State == "live" {
			t.Errorf("a token for %v lives on", token.Repositories)
		}
	}
}

// TestSavedToken: what an agent saved of its token is worth nothing once the run is
// over.
//
// probe: G6
// oracle: GitHub's answer, to a sandbox without access and to the host
func TestSavedToken(t *testing.T) {
	dir := callersDir(t, "saved")
	save := onHub(api.GithubAccess{Owner: "acme", Repo: "app", Profile: "repo-write"}, tools+`printf %s "$GITHUB_TOKEN" >/workspace/saved; url https://api.github.com/repos/acme/app && echo good`)
	save.Config.CWD = dir
	res, events := run(t, save)
	if !res.Success || !strings.Contains(res.Output, "good") {
		t.Fatalf("control: %+v, %s", res.Error, text(events, api.EventStderr))
	}
	use := bash("strict", `curl -sS -o /dev/null -w '%{http_code}\n' -H "Authorization: Bearer $(cat /workspace/saved)" https://api.github.com/repos/acme/app; env | grep -c GITHUB_TOKEN`)
	use.Config.CWD = dir
	res, _ = run(t, use)
	if res.Output != "401\n0\n" {
		t.Errorf("with the saved token: %q, want 401 and no token of its own", res.Output)
	}
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

// TestKeyStaysOut looks for the App's private key and its signatures wherever a
// sandbox or an operator's tool could show it, for each profile.
//
// probe: G7
// oracle: the host, which searches what the sandbox found, what the engine tells of it, the
// image's layers and the executor's log
func TestKeyStaysOut(t *testing.T) {
	key := docker(t, "exec", container(t, "internet", ""), "cat", "/run/internet/github-app.pem")
	lines := strings.Split(key, "\n")
	if len(lines) < 20 {
		t.Fatalf("control: the App's key is %q", key)
	}
	secret := lines[5]
	for _, profile := range profiles {
		dir := callersDir(t, "key")
		req := onHub(api.GithubAccess{Owner: "acme", Repo: "app", Profile: profile}, `
cat /proc/*/environ /proc/*/cmdline >/workspace/proc 2>/dev/null; env >/workspace/env
find / -xdev \( -path /proc -o -path /sys -o -path /workspace \) -prune -o -type f -size -200k -newer /etc/hostname -print0 2>/dev/null | xargs -0 cat >/workspace/files 2>/dev/null
cat /run/sallyport/github/* >>/workspace/files; ls -l /run/sallyport/github /run/internet /etc/sallyport >/workspace/list 2>&1
git config --list --show-origin >/workspace/git; echo "key <$GITHUB_APP_PRIVATE_KEY_PATH>"; sleep 2`)
		req.Config.CWD = dir
		id := begin(t, req)
		box := container(t, "sandbox", id)
		places := map[string]string{"inspect": docker(t, "inspect", box), "layer": docker(t, "diff", box)}
		res := finish(t, id)
		if !res.Success || res.Output != "key <>\n" {
			t.Errorf("%s: %q, %+v", profile, res.Output, res.Error)
		}
		for _, name := range []string{"proc", "env", "files", "list", "git"} {
			b, err := os.ReadFile(filepath.Join(dir, name))
			if err != nil {
				t.Error(err)
			}
			places[name] = string(b)
		}
		if !strings.Contains(places["env"], "GITHUB_TOKEN=ghs_") || !strings.Contains(places["files"], "ghs_") {
			t.Errorf("control: %s found no token where there is one", profile)
		}
		if strings.Contains(places["inspect"], "ghs_") {
			t.Errorf("%s: the engine tells the token", profile)
		}
		checkPlaces(t, profile, places, secret)
	}
	logs, err := exec.Command("docker", "logs", container(t, "executor", "")).CombinedOutput()
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(logs, []byte("ghs_")) || !bytes.Contains(logs, []byte(`"GitHub token"`)) {
		t.Error("the executor's log tells a token, or nothing of tokens at all")
	}
	checkPlaces(t, "executor", map[string]string{"log": string(logs), "inspect": docker(t, "inspect", container(t, "executor", ""))}, secret)
}

func checkPlaces(t *testing.T, who string, places map[string]string, secret string) {
	t.Helper()
	for place, content := range places {
		for what, mark := range map[string]string{"the key": secret, "a key": "PRIVATE KEY-----", "a JSON web token": "eyJhbGciOi"} {
			if strings.Contains(content, mark) {
				t.Errorf("%s: %s is in %s", who, what, place)
			}
		}
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
	res, events := run(t, onHub(access, `git symbolic-ref --short HEAD; git merge-base HEAD origin/main >/dev/null && echo base; git status --porcelain | wc -l
grep -rc ghs_ .git/config; git push -q origin HEAD:refs/heads/injected 2>&1 | grep -o 403 | head -1`))
	if !res.Success || res.Output != "feature\nbase\n0\n0\n403\n" || res.Github.Checkout != api.CheckoutDone {
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

// TestMintFails: GitHub's failures are a code each; nothing was started.
func TestMintFails(t *testing.T) {
	defer hub(t, "DELETE", "faults", "")
	for fault, reason := range map[string]string{
		`{"only":"mint","status":403,"body":"{}"}`: "not_permitted",
		`{"scope":"wider-permissions"}`:            "wider_scope",
	} {
		hub(t, "PUT", "faults", fault)
		res, events := run(t, onHub(api.GithubAccess{Owner: "acme", Repo: "app", Profile: "read"}, "echo never"))
		wantError(t, res, api.CodeGithubToken)
		if res.Error != nil && res.Error.Details["reason"] != reason || slices.ContainsFunc(events, func(e api.Event) bool { return e.Stage == "start" }) {
			t.Errorf("%s: %+v", fault, res.Error)
		}
	}
}

// TestKeyWhereAllowed: with request, profile and service of one mind the App's key is
// one file in memory that only the agent's user reads, and nowhere else.
//
// probe: G7
// oracle: what the sandbox finds, the engine, the executor's log
func TestKeyWhereAllowed(t *testing.T) {
	secret := strings.Split(docker(t, "exec", container(t, "internet", ""), "cat", "/run/internet/github-app.pem"), "\n")[5]
	reconfigure(t, `SALLYPORT_GITHUB_ALLOW_APP_KEY: "true"`)
	access := api.GithubAccess{Owner: "acme", Repo: "app", Profile: "repo-write", AllowMcpAppAuth: true}
	id := begin(t, onHub(access, `stat -c '%a %U' "$GITHUB_APP_PRIVATE_KEY_PATH"; openssl rsa -in "$GITHUB_APP_PRIVATE_KEY_PATH" -check -noout
grep -c "PRIVATE KEY" /proc/self/environ; df --output=fstype "$GITHUB_APP_PRIVATE_KEY_PATH" | tail -1; cat "$GITHUB_APP_PRIVATE_KEY_PATH"; sleep 2`))
	box := container(t, "sandbox", id)
	inspect := docker(t, "inspect", box)
	res := finish(t, id)
	if want := "400 agent\nRSA key ok\n0\ntmpfs\n-----BEGIN"; !res.Success || !strings.HasPrefix(res.Output, want) || !res.Github.AppKey {
		t.Errorf("%q, %+v, want %q", res.Output, res.Error, want)
	}
	logs, err := exec.Command("docker", "logs", container(t, "executor", "")).CombinedOutput()
	if err != nil {
		t.Fatal(err)
	}
	checkPlaces(t, "allowed", map[string]string{"inspect": inspect, "log": string(logs)}, secret)
	if strings.Contains(res.Output, secret) {
		t.Error("the key's lines are in the result")
	}
	access.AllowMcpAppAuth = false
	if res, _ := run(t, onHub(access, `echo "<$GITHUB_APP_PRIVATE_KEY_PATH>"; ls /run/sallyport/github`)); strings.Contains(res.Output, "pem") || !strings.HasPrefix(res.Output, "<>\n") {
		t.Errorf("without a wish: %q", res.Output)
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
