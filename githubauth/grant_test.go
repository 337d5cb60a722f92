package githubauth_test

import (
	"strings"
	"testing"

	"sallyport/githubauth"
	"sallyport/githubauth/githubtest"
)

func TestNewGrant(t *testing.T) {
	many := make([]string, 501)
	for i := range many {
		many[i] = "r" + strings.Repeat("x", i%90) + string(rune('a'+i/90))
	}
	profiles := githubauth.DefaultProfiles()
	for _, test := range []struct {
		name, profile, owner string
		repositories         []string
		wrong                string // "" where it is granted
	}{
		{"one", "read", "acme", []string{"shop"}, ""},
		{"several", "repo-write", "Acme-1", []string{"shop", ".github", "a_b.c-d"}, ""},
		{"an enterprise-managed user", "read", "mona_acme", []string{"shop"}, ""},
		{"500", "read", "acme", many[:500], ""},
		{"501", "read", "acme", many, "at most 500"},
		{"no profile", "", "acme", []string{"shop"}, "there is no GitHub profile"},
		{"an unknown profile", "root\x1b[31m", "acme", []string{"shop"}, "there are issues-write, read, repo-write, review-write"},
		{"no owner", "read", "", []string{"shop"}, "not the name of a GitHub user"},
		{"a path for an owner", "read", "../app", []string{"shop"}, "not the name of a GitHub user"},
		{"no repository", "read", "acme", nil, "no repository is named"},
		{"an empty repository", "read", "acme", []string{""}, "not the name of a GitHub repository"},
		{"an owner in it", "read", "acme", []string{"acme/shop"}, "without the owner"},
		{"a star", "read", "acme", []string{"*"}, "not the name"},
		{"dots", "read", "acme", []string{".."}, "not the name"},
		{"a file ending", "read", "acme", []string{"shop.git"}, "not the name"},
		{"twice", "read", "acme", []string{"shop", "Shop"}, "twice"},
		{"a line break", "read", "acme", []string{"shop\nx"}, "not the name"},
	} {
		g, err := profiles.NewGrant(test.profile, test.owner, test.repositories)
		switch {
		case test.wrong == "" && (err != nil || g.Owner != test.owner || g.Profile.Name != test.profile):
			t.Errorf("%s: %v, %v", test.name, g, err)
		case test.wrong != "" && (err == nil || !strings.Contains(err.Error(), test.wrong) || strings.ContainsRune(err.Error(), '\x1b')):
			t.Errorf("%s: %v, want %q", test.name, err, test.wrong)
		}
	}
	for _, none := range []*githubauth.Profiles{nil, new(githubauth.Profiles)} {
		if _, err := none.NewGrant("read", "acme", []string{"shop"}); err == nil {
			t.Error("no profiles grant something")
		}
		if _, ok := none.Get("read"); ok || len(none.Names())+len(none.Ceiling())+len(none.Lint()) > 0 {
			t.Error("no profiles have something")
		}
	}
}

// TestForgedGrants: a grant that was not judged, or was changed since, is not sent.
//
// probe: G1
// oracle: GitHub's list of requests, and the addresses that were dialed
func TestForgedGrants(t *testing.T) {
	b := newBench(t, nil)
	static, _ := newStatic(t, b, githubtest.PAT)
	good := func(change func(*githubauth.Grant)) githubauth.Grant {
		g := grant(t, "read", "Acme", "shop")
		change(&g)
		return g
	}
	for name, g := range map[string]githubauth.Grant{
		"zero":             {},
		"by hand":          {Owner: "Acme", Repositories: []string{"shop"}, Profile: githubauth.Builtin()[0]},
		"no repositories":  good(func(g *githubauth.Grant) { g.Repositories = nil }),
		"no permissions":   good(func(g *githubauth.Grant) { g.Profile.Permissions = nil }),
		"none at all":      good(func(g *githubauth.Grant) { clear(g.Profile.Permissions) }),
		"beyond":           good(func(g *githubauth.Grant) { g.Profile.Permissions["administration"] = "write" }),
		"an unknown level": good(func(g *githubauth.Grant) { g.Profile.Permissions["contents"] = "all" }),
		"an empty level":   good(func(g *githubauth.Grant) { g.Profile.Permissions["contents"] = "" }),
		"another owner":    good(func(g *githubauth.Grant) { g.Owner = "x/../Acme" }),
	} {
		token, err := b.app.Mint(t.Context(), g)
		failure(t, err, githubauth.ReasonInvalidGrant)
		again, err := static.Mint(t.Context(), g)
		failure(t, err, githubauth.ReasonInvalidGrant)
		if token.Value() != "" || again.Value() != "" {
			t.Errorf("%s: got a token", name)
		}
	}
	if len(b.github.Asked()) != 0 || len(b.dialed.String()) != 0 {
		t.Errorf("GitHub was asked: %v", b.github.Asked())
	}
	if _, err := b.app.Mint(t.Context(), good(func(*githubauth.Grant) {})); err != nil {
		t.Errorf("the one that is right: %v", err)
	}
}

// TestProfilesAreImmutable: what is handed out can be changed without effect.
func TestProfilesAreImmutable(t *testing.T) {
	profiles := githubauth.DefaultProfiles()
	p, _ := profiles.Get("read")
	p.Permissions["contents"] = "write"
	profiles.Ceiling()["administration"] = "write"
	githubauth.Builtin()[0].Permissions["contents"] = "write"
	g, err := profiles.NewGrant("read", "acme", []string{"shop"})
	if err != nil {
		t.Fatal(err)
	}
	if g.Profile.Permissions["contents"] != "read" || profiles.Ceiling()["administration"] != "" || githubauth.Builtin()[0].Permissions["contents"] != "read" {
		t.Errorf("%v; ceiling %v", g, profiles.Ceiling())
	}
}

func TestWithin(t *testing.T) {
	type P = githubauth.Permissions
	ceiling := P{"contents": "write", "issues": "read", "organization_projects": "admin", "odd": "all"}
	for _, test := range []struct {
		p    P
		what string // the first that is wider
	}{
		{nil, ""},
		{P{"contents": "read", "issues": "read"}, ""},
		{P{"contents": "write", "organization_projects": "admin"}, ""},
		{P{"contents": "admin"}, "contents"},
		{P{"issues": "write", "zebra": "read"}, "issues"},
		{P{"pages": "read"}, "pages"},
		{P{"contents": ""}, "contents"},
		{P{"contents": "Write"}, "contents"},
		{P{"odd": "all"}, "odd"},
		{P{"odd": "read"}, "odd"},
	} {
		err := test.p.Within(ceiling)
		wide, _ := err.(*githubauth.WiderError)
		if (err == nil) != (test.what == "") || wide != nil && wide.Permission != test.what {
			t.Errorf("%v: %v, want %q", test.p, err, test.what)
		}
	}
	if (P{"contents": "read"}).Within(nil) == nil {
		t.Error("something is within nothing")
	}
}
