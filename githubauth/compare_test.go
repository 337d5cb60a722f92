package githubauth_test

import (
	"strings"
	"testing"
	"time"

	"sallyport/githubauth/githubtest"
	"sallyport/githubauth/rest"
)

// TestScope: a token that is not what was asked for is revoked and not handed out.
//
// probe: G2
// oracle: GitHub's list of tokens, and which of them are still good
func TestScope(t *testing.T) {
	repository := func(full string) map[string]any { return map[string]any{"name": "x", "full_name": full} }
	for _, test := range []struct {
		name   string
		change func(*githubtest.Given)
		reason rest.Reason // "" where it is taken
		says   string
	}{
		{"as it is", func(*githubtest.Given) {}, "", ""},
		{"in other letters", func(a *githubtest.Given) {
			a.Repositories = []map[string]any{repository("ACME/SHOP"), repository("acme/Site")}
		}, "", ""},
		{"no selection, as of old servers", func(a *githubtest.Given) { a.Selection = "" }, "", ""},
		{"a higher level", func(a *githubtest.Given) { a.Permissions["contents"] = "write" }, rest.ReasonWiderScope, "contents: write"},
		{"an admin", func(a *githubtest.Given) { a.Permissions["issues"] = "admin" }, rest.ReasonWiderScope, "issues: admin"},
		{"a level of which nothing is known", func(a *githubtest.Given) { a.Permissions["issues"] = "READ" }, rest.ReasonWiderScope, "issues: READ"},
		{"one more permission", func(a *githubtest.Given) { a.Permissions["workflows"] = "write" }, rest.ReasonWiderScope, "workflows: write"},
		{"one more, of which nothing is known", func(a *githubtest.Given) { a.Permissions["teleport"] = "read" }, rest.ReasonWiderScope, "teleport: read"},
		{"all repositories", func(a *githubtest.Given) { a.Selection = "all" }, rest.ReasonWiderScope, "all repositories"},
		{"all repositories, none named", func(a *githubtest.Given) { a.Selection, a.Repositories = "all", nil }, rest.ReasonWiderScope, "all repositories"},
		{"no repositories named", func(a *githubtest.Given) { a.Repositories = nil }, rest.ReasonWiderScope, "names no repositories"},
		{"one more repository", func(a *githubtest.Given) { a.Repositories = append(a.Repositories, repository("Acme/Docs")) }, rest.ReasonWiderScope, "Acme/Docs"},
		{"the repository of another owner", func(a *githubtest.Given) { a.Repositories[0] = repository("evil/shop") }, rest.ReasonWiderScope, "evil/shop"},
		{"a repository without owner", func(a *githubtest.Given) { a.Repositories[0] = repository("shop") }, rest.ReasonWiderScope, "repository shop"},
		{"a repository that is called as a token is", func(a *githubtest.Given) { a.Repositories[0] = repository("ghp_" + githubtest.Mark + "0123456789") }, rest.ReasonWiderScope, "[redacted]"},
		{"a level that looks like a JWT", func(a *githubtest.Given) { a.Permissions["issues"] = "eyJ" + githubtest.Mark + "0123456789.x" }, rest.ReasonWiderScope, "[redacted]"},
		{"a lower level", func(a *githubtest.Given) { delete(a.Permissions, "issues") }, rest.ReasonNarrowerScope, "issues: read"},
		{"no permissions", func(a *githubtest.Given) { a.Permissions = nil }, rest.ReasonNarrowerScope, "contents: read"},
		{"a repository less", func(a *githubtest.Given) { a.Repositories = a.Repositories[:1] }, rest.ReasonNarrowerScope, "Acme/site"},
		{"no end", func(a *githubtest.Given) { a.ExpiresAt = nil }, rest.ReasonMalformed, "no time"},
		{"an end that is past", func(a *githubtest.Given) { a.ExpiresAt = "2001-01-01T00:00:00Z" }, rest.ReasonMalformed, "no time"},
		{"an end that is no time", func(a *githubtest.Given) { a.ExpiresAt = "soon" }, rest.ReasonMalformed, "JSON"},
		{"a short life", func(a *githubtest.Given) { a.ExpiresAt = time.Now().Add(time.Minute) }, "", ""},
		{"a line break in the token", func(a *githubtest.Given) { a.Token += "\nx: y" }, rest.ReasonMalformed, "no token"},
	} {
		t.Run(test.name, func(t *testing.T) {
			b := newBench(t, nil)
			b.github.Change = test.change
			token, err := b.app.Mint(t.Context(), grant(t, "read", "Acme", "shop", "site"))
			if test.reason == "" {
				if err != nil || token.Value() == "" || len(b.github.Alive()) != 1 {
					t.Errorf("%v, %v; alive are %q", token, err, b.github.Alive())
				}
				return
			}
			e := failure(t, err, test.reason)
			if !strings.Contains(e.Error(), test.says) || e.Retryable {
				t.Errorf("%v", e)
			}
			alive := b.github.Alive()
			if test.says == "no token" { // what is no token cannot be revoked
				alive = nil
			}
			if token.Value() != "" || len(alive) > 0 {
				t.Errorf("got %q; alive are %q", token.Value(), alive)
			}
			noSecrets(t, b, err)
		})
	}
}

// TestScopeLower: a profile that may write is refused a token that only reads.
func TestScopeLower(t *testing.T) {
	b := newBench(t, nil)
	b.github.Change = func(a *githubtest.Given) { a.Permissions["contents"] = "read" }
	_, err := b.app.Mint(t.Context(), grant(t, "repo-write", "Acme", "shop"))
	if e := failure(t, err, rest.ReasonNarrowerScope); !strings.Contains(e.Error(), "contents: write") || len(b.github.Alive()) > 0 {
		t.Errorf("%v; alive are %q", e, b.github.Alive())
	}
}

// TestNotGranted: the error says which permission or repository is missing.
func TestNotGranted(t *testing.T) {
	b := newBench(t, nil)
	_, err := b.app.Mint(t.Context(), grant(t, "issues-write", "octocat", "hello"))
	if e := failure(t, err, rest.ReasonNotPermitted); !strings.Contains(e.Error(), `does not have issues: write, which profile "issues-write" needs`) {
		t.Error(e)
	}
	_, err = b.app.Mint(t.Context(), grant(t, "read", "octocat", "shop"))
	if e := failure(t, err, rest.ReasonNotPermitted); !strings.Contains(e.Error(), "does not exist or is not accessible") {
		t.Error(e)
	}
}
