package compose_test

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"sallyport/executor/api"
)

// TestKeyStaysOut looks for the App's private key and its signatures wherever a
// sandbox or an operator's tool could show it, for each profile.
//
// probe: G7
// oracle: the host, which searches what the sandbox found in its files and processes, what
// the engine tells of it and of its image, and the executor's log
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
		image := strings.TrimSpace(docker(t, "inspect", "--format", "{{.Image}}", box))
		places := map[string]string{
			"inspect": docker(t, "inspect", box), "changes": docker(t, "diff", box),
			"image": docker(t, "image", "inspect", image) + docker(t, "history", "--no-trunc", image),
		}
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

// TestMintFails: GitHub's failures are a code each; nothing was started, and nothing
// told.
//
// probe: G2, G10
// oracle: the engine, which has no sandbox, GitHub's list of tokens, and the executor's log
func TestMintFails(t *testing.T) {
	secret := strings.Split(docker(t, "exec", container(t, "internet", ""), "cat", "/run/internet/github-app.pem"), "\n")[5]
	defer hub(t, "DELETE", "faults", "")
	for fault, reason := range map[string]string{
		`{"only":"mint","status":403,"body":"{}"}`: "not_permitted",
		`{"only":"mint","status":500,"body":"x"}`:  "server",
		// What was in the half that got lost lives on in nobody's hands, not long here.
		`{"only":"mint","truncate":true,"tokenLife":"1s"}`: "malformed",
		`{"only":"mint","delay":"40s"}`:                    "timeout",
		`{"scope":"wider-permissions"}`:                    "wider_scope",
	} {
		hub(t, "PUT", "faults", fault)
		res, events := run(t, onHub(api.GithubAccess{Owner: "acme", Repo: "app", Profile: "read"}, "echo never"))
		wantError(t, res, api.CodeGithubToken)
		if res.Error != nil && res.Error.Details["reason"] != reason || slices.ContainsFunc(events, func(e api.Event) bool { return e.Stage == "cell" || e.Stage == "start" }) {
			t.Errorf("%s: %+v", fault, res.Error)
		}
		if boxes := docker(t, "ps", "-aq", "--filter", "label=org.sallyport.stack="+stackName, "--filter", "label=org.sallyport.run="+res.ExecutionID); strings.TrimSpace(boxes) != "" {
			t.Errorf("%s: the engine has %s", fault, boxes)
		}
		told, err := json.Marshal(events)
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(told, []byte("ghs_")) {
			t.Errorf("%s: a token is in the events", fault)
		}
		checkPlaces(t, fault, map[string]string{"events": string(told)}, secret)
	}
	isLive := func(token hubToken) bool { return token.State == "live" }
	for deadline := time.Now().Add(10 * time.Second); slices.ContainsFunc(hubTokens(t), isLive); time.Sleep(200 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("a token lives on")
		}
	}
	logs, err := exec.Command("docker", "logs", container(t, "executor", "")).CombinedOutput()
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(logs, []byte("ghs_")) || !bytes.Contains(logs, []byte("github_token_failed")) {
		t.Error("the executor's log tells a token, or nothing of failures at all")
	}
	checkPlaces(t, "executor", map[string]string{"log": string(logs)}, secret)
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
