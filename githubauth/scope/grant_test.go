package scope_test

import (
	"strings"
	"testing"

	"sallyport/githubauth/scope"
)

func TestNewGrant(t *testing.T) {
	many := make([]string, 501)
	for i := range many {
		many[i] = "r" + strings.Repeat("x", i%90) + string(rune('a'+i/90))
	}
	profiles := scope.DefaultProfiles()
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
	for _, none := range []*scope.Profiles{nil, new(scope.Profiles)} {
		if _, err := none.NewGrant("read", "acme", []string{"shop"}); err == nil {
			t.Error("no profiles grant something")
		}
		if _, ok := none.Get("read"); ok || len(none.Names())+len(none.Ceiling())+len(none.Lint()) > 0 {
			t.Error("no profiles have something")
		}
	}
}

// TestProfilesAreImmutable: what is handed out can be changed without effect.
func TestProfilesAreImmutable(t *testing.T) {
	profiles := scope.DefaultProfiles()
	p, _ := profiles.Get("read")
	p.Permissions["contents"] = "write"
	profiles.Ceiling()["administration"] = "write"
	scope.Builtin()[0].Permissions["contents"] = "write"
	g, err := profiles.NewGrant("read", "acme", []string{"shop"})
	if err != nil {
		t.Fatal(err)
	}
	if g.Profile.Permissions["contents"] != "read" || profiles.Ceiling()["administration"] != "" || scope.Builtin()[0].Permissions["contents"] != "read" {
		t.Errorf("%v; ceiling %v", g, profiles.Ceiling())
	}
}

func TestWithin(t *testing.T) {
	type P = scope.Permissions
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
		wide, _ := err.(*scope.WiderError)
		if (err == nil) != (test.what == "") || wide != nil && wide.Permission != test.what {
			t.Errorf("%v: %v, want %q", test.p, err, test.what)
		}
	}
	if (P{"contents": "read"}).Within(nil) == nil {
		t.Error("something is within nothing")
	}
}
