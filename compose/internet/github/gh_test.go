package github

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// gh is the command line of GitHub that the tests run; another release of it may
// be tried by the environment.
func gh() string {
	if path := os.Getenv("SALLYPORT_TEST_GH"); path != "" {
		return path
	}
	return "gh"
}

const inaccessible = "Resource not accessible by integration"

// TestGH runs gh as each profile, in a clone as agents do.
func TestGH(t *testing.T) {
	b := newBench(t)
	for _, profile := range []string{"read", "issues-write", "review-write", "repo-write", "everything"} {
		t.Run(profile, func(t *testing.T) {
			token, dir := newToken(t, b.Server, b.client, profile, "app"), t.TempDir()
			b.must(t, dir, token, "git", "clone", "-q", "https://github.com/acme/app")
			clone := filepath.Join(dir, "app")
			see := func(want string, args ...string) {
				t.Helper()
				if out := b.must(t, clone, token, append([]string{gh()}, args...)...); !strings.Contains(out, want) {
					t.Errorf("gh %s: no %q in %s", strings.Join(args, " "), want, out)
				}
			}
			// do runs what takes one of the profile's permissions.
			do := func(name, level string, args ...string) bool {
				t.Helper()
				if profiles[profile].has(name, level) {
					b.must(t, clone, token, append([]string{gh()}, args...)...)
					return true
				}
				b.refused(t, clone, token, inaccessible, append([]string{gh()}, args...)...)
				return false
			}
			see("The application", "repo", "view")
			see("acme/app", "repo", "view", "acme/app", "--json", "nameWithOwner,isPrivate,defaultBranchRef,viewerPermission")
			see("The last line is dropped", "issue", "view", "1")
			see("The last line is dropped", "issue", "list")
			see("Add a feature", "pr", "view", "2")
			see("Add a feature", "pr", "view", "2", "--json", "title,number,state,headRefName,files,commits,reviews,mergeable,statusCheckRollup")
			see("Add a feature", "pr", "list")
			see("feature/1.txt", "pr", "diff", "2")
			see(`"login":"acme"`, "api", "graphql", "-f", `query={repository(owner:"acme",name:"app"){owner{login}}}`)
			see("count to 12", "api", "repos/acme/app/commits", "--jq", `"count to 12"`)
			b.refused(t, clone, token, "Could not resolve to a Repository", gh(), "repo", "view", "acme/lib")
			b.refused(t, clone, token, "Could not resolve to a Repository", gh(), "issue", "view", "1", "-R", "other/hidden")
			b.refused(t, clone, token, "HTTP 404", gh(), "api", "repos/acme/vault")

			do("issues", "write", "issue", "create", "--title", "by "+profile, "--body", "b")
			if do("issues", "write", "issue", "comment", "1", "--body", "from "+profile) {
				see("from "+profile, "issue", "view", "1", "--comments")
			}
			do("pull_requests", "write", "pr", "edit", "2", "--title", "Add a feature")
			do("pull_requests", "write", "pr", "review", "2", "--approve", "--body", "fine")
			do("contents", "write", "release", "create", "v-"+profile, "--notes", "n")
			do("administration", "write", "repo", "edit", "acme/app", "--enable-wiki=false")
			do("contents", "write", "api", "repos/acme/app/git/refs", "-f", "ref=refs/heads/own-"+profile, "-f", "sha="+b.head(t, mainBranch))
			b.ghPull(t, profile, clone, token)
		})
	}
}

func (b *bench) head(t *testing.T, branch string) string {
	t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.world.repo("acme", "app").git.branch(t.Context(), branch)
}

// ghPull opens a pull request from a branch that is there already, and merges it.
func (b *bench) ghPull(t *testing.T, profile, clone, token string) {
	t.Helper()
	branch := "work-" + profile
	admin := newToken(t, b.Server, b.client, "everything", "app")
	b.must(t, clone, "", "git", "checkout", "-q", "-b", branch)
	b.commit(t, clone, "work/"+profile, "done\n")
	b.must(t, clone, admin, "git", "push", "-q", "-u", "origin", branch)
	create := []string{gh(), "pr", "create", "--title", "Work of " + profile, "--body", "b", "--head", branch, "--base", mainBranch}
	if !profiles[profile].has("pull_requests", "write") {
		b.refused(t, clone, token, inaccessible, create...)
		b.refused(t, clone, token, inaccessible, gh(), "pr", "merge", "2", "--merge")
		return
	}
	url := strings.TrimSpace(b.must(t, clone, token, create...))
	b.refused(t, clone, token, "already exists", create...)
	b.refused(t, clone, token, "Can not approve your own pull request", gh(), "pr", "review", branch, "--approve")
	b.must(t, clone, token, gh(), "pr", "comment", branch, "--body", "look")
	number := url[strings.LastIndex(url, "/")+1:]
	merge := []string{gh(), "pr", "merge", number, "--squash"}
	if !profiles[profile].has("contents", "write") {
		b.refused(t, clone, token, inaccessible, merge...)
		return
	}
	b.must(t, clone, token, merge...)
	var seen struct{ State string }
	out := b.must(t, clone, token, gh(), "pr", "view", number, "--json", "state")
	if err := json.Unmarshal([]byte(out), &seen); err != nil || seen.State != "MERGED" {
		t.Errorf("after the merge: %s", out)
	}
	b.must(t, clone, token, "git", "fetch", "-q", "origin")
	if got := b.must(t, clone, "", "git", "show", "origin/main:work/"+profile); got != "done\n" {
		t.Errorf("main has %q", got)
	}
}

// TestGHWithout shows gh with a token that was revoked.
func TestGHWithout(t *testing.T) {
	b := newBench(t)
	token := newToken(t, b.Server, b.client, "repo-write", "app")
	if a := ask(t, b.client, "DELETE", "/installation/token", token, nil); a.status != 204 {
		t.Fatalf("revoke: %d %s", a.status, a.text)
	}
	for _, args := range [][]string{{"repo", "view", "acme/app"}, {"api", "repos/acme/site"}, {"issue", "list", "-R", "acme/app"}} {
		b.refused(t, t.TempDir(), token, "HTTP 401", append([]string{gh()}, args...)...)
	}
	if got := b.log.after(0, hashOf(token)); len(got) < 4 || got[1].Auth != "token" || got[1].Status != 401 {
		t.Errorf("the log of the token is %s", fmt.Sprint(got))
	}
}
