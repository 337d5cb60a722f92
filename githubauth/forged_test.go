package githubauth_test

import (
	"testing"

	"sallyport/githubauth/githubtest"
	"sallyport/githubauth/rest"
	"sallyport/githubauth/scope"
)

// TestForgedGrants: a grant that was not judged, or was changed since, is not sent.
//
// probe: G1
// oracle: GitHub's list of requests, and the addresses that were dialed
func TestForgedGrants(t *testing.T) {
	b := newBench(t, nil)
	static, _ := newStatic(t, b, githubtest.PAT)
	good := func(change func(*scope.Grant)) scope.Grant {
		g := grant(t, "read", "Acme", "shop")
		change(&g)
		return g
	}
	for name, g := range map[string]scope.Grant{
		"zero":             {},
		"by hand":          {Owner: "Acme", Repositories: []string{"shop"}, Profile: scope.Builtin()[0]},
		"no repositories":  good(func(g *scope.Grant) { g.Repositories = nil }),
		"no permissions":   good(func(g *scope.Grant) { g.Profile.Permissions = nil }),
		"none at all":      good(func(g *scope.Grant) { clear(g.Profile.Permissions) }),
		"beyond":           good(func(g *scope.Grant) { g.Profile.Permissions["administration"] = "write" }),
		"an unknown level": good(func(g *scope.Grant) { g.Profile.Permissions["contents"] = "all" }),
		"an empty level":   good(func(g *scope.Grant) { g.Profile.Permissions["contents"] = "" }),
		"another owner":    good(func(g *scope.Grant) { g.Owner = "x/../Acme" }),
	} {
		token, err := b.app.Mint(t.Context(), g)
		failure(t, err, rest.ReasonInvalidGrant)
		again, err := static.Mint(t.Context(), g)
		failure(t, err, rest.ReasonInvalidGrant)
		if token.Value() != "" || again.Value() != "" {
			t.Errorf("%s: got a token", name)
		}
	}
	if len(b.github.Asked()) != 0 || len(b.dialed.String()) != 0 {
		t.Errorf("GitHub was asked: %v", b.github.Asked())
	}
	if _, err := b.app.Mint(t.Context(), good(func(*scope.Grant) {})); err != nil {
		t.Errorf("the one that is right: %v", err)
	}
}
