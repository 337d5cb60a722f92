package compose_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"sallyport/executor/api"
)

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
// oracle: GitHub's own answers, what its log has of each request with the run's token, and
// what is in the repository afterwards
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
			before := hubTokens(t)
			res, events := run(t, onHub(api.GithubAccess{Owner: "acme", Repo: "app", Profile: profile}, script.String()))
			if !res.Success {
				t.Fatalf("%+v\n%s", res.Error, text(events, api.EventStderr))
			}
			checkWrites(t, profile, letter, before)
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
	res, events := run(t, onHub(api.GithubAccess{Owner: "acme", Repo: "app", Profile: "read"}, tools+`
git ls-remote -q --heads https://github.com/acme/app.git | cut -f2 | grep -E '/[pqy]-' | sort
for p in read issues-write review-write repo-write; do url https://api.github.com/repos/acme/app/contents/$p.txt 2>/dev/null && echo "$p.txt"; done; true`))
	if want := "refs/heads/p-repo-write\nrefs/heads/q-repo-write\nrepo-write.txt\n"; res.Output != want {
		t.Errorf("afterwards there is %q, want %q; %+v %s", res.Output, want, res.Error, text(events, api.EventStderr))
	}
}

// writes are the requests by which operations change something, and whose profile has
// them succeed.
var writes = []struct{ method, path, may string }{
	{"POST", "/repos/acme/app/issues", "ivw"},
	{"POST", "/repos/acme/app/pulls", "vw"},
	{"POST", "/repos/acme/app/pulls/2/reviews", "vw"},
	{"PUT", "/repos/acme/app/contents/", "w"},
	{"PUT", "/repos/acme/app/pulls/2/merge", "w"},
	{"POST", "/repos/acme/app/releases", "w"},
	{"PATCH", "/repos/acme/app", ""},
}

// checkWrites holds GitHub's log of the one token that is new to what its profile may
// do: each write arrived, and those alone succeeded that may.
func checkWrites(t *testing.T, profile, letter string, before []hubToken) {
	t.Helper()
	fresh := slices.DeleteFunc(hubTokens(t), func(now hubToken) bool {
		return slices.ContainsFunc(before, func(old hubToken) bool { return old.Hash == now.Hash })
	})
	if len(fresh) != 1 || !slices.Equal(fresh[0].Repositories, []string{"app"}) {
		t.Fatalf("%s: GitHub has made the tokens %+v", profile, fresh)
	}
	var changed []string // that GitHub says it has done, beyond git's and gh's own ways
	arrived := map[int]bool{}
	for _, r := range hubRequests(t) {
		if r.Token != fresh[0].Hash || r.Method == "GET" || r.Method == "HEAD" {
			continue
		}
		for i, w := range writes {
			if r.Method == w.method && (r.Path == w.path || strings.HasSuffix(w.path, "/") && strings.HasPrefix(r.Path, w.path)) {
				arrived[i] = true
				if done := r.Status < 300; done != strings.Contains(w.may, letter) {
					t.Errorf("%s: GitHub answered %s %s with %d", profile, r.Method, r.Path, r.Status)
				}
			}
		}
		if strings.HasSuffix(r.Path, "/git-receive-pack") && r.Status < 300 {
			changed = append(changed, r.Path)
		}
	}
	if len(arrived) != len(writes) {
		t.Errorf("control: %s: of %d kinds of writes %d have arrived", profile, len(writes), len(arrived))
	}
	if (len(changed) > 0) != (letter == "w") {
		t.Errorf("%s: GitHub took the pushes %q", profile, changed)
	}
}
