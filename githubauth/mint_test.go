package githubauth_test

import (
	"errors"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"sallyport/githubauth"
	"sallyport/githubauth/githubtest"
	"sallyport/githubauth/rest"
	"sallyport/githubauth/scope"
)

// grant judges a request with the built-in profiles.
func grant(t testing.TB, profile, owner string, repositories ...string) scope.Grant {
	t.Helper()
	g, err := scope.DefaultProfiles().NewGrant(profile, owner, repositories)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// failure is the *Error of err, which must be one with that reason.
func failure(t testing.TB, err error, reason rest.Reason) *rest.Error {
	t.Helper()
	e, ok := errors.AsType[*rest.Error](err)
	if !ok || e.Reason != reason {
		t.Fatalf("got the error %v, want one because of %s", err, reason)
	}
	return e
}

func TestMint(t *testing.T) {
	for _, profile := range scope.Builtin() {
		t.Run(profile.Name, func(t *testing.T) {
			b := newBench(t, nil)
			token, err := b.app.Mint(t.Context(), grant(t, profile.Name, "Acme", "site", "shop"))
			if err != nil {
				t.Fatal(err)
			}
			want := githubtest.Asked{Repositories: []string{"site", "shop"}, Permissions: profile.Permissions}
			if got := b.github.Asked(); len(got) != 1 || !reflect.DeepEqual(got[0], want) {
				t.Errorf("asked for %+v, want %+v", got, want)
			}
			if !maps.Equal(token.Permissions, profile.Permissions) || token.Owner != "Acme" || !slices.Equal(token.Repositories, []string{"shop", "site"}) || !token.Downscoped {
				t.Errorf("the token is %v", token)
			}
			if left := time.Until(token.Expires); left < 30*time.Minute || left > time.Hour || token.Lifetime < 30*time.Minute || token.Lifetime > time.Hour {
				t.Errorf("the token lives %v (%v), want an hour", left, token.Lifetime)
			}
			if !slices.Equal(b.github.Alive(), []string{token.Value()}) {
				t.Errorf("GitHub's tokens are %q, got %q", b.github.Alive(), token.Value())
			}
			if err := b.app.Revoke(t.Context(), token.Value()); err != nil || len(b.github.Alive()) != 0 {
				t.Errorf("revoked with %v; alive are %q", err, b.github.Alive())
			}
			if err := b.app.Revoke(t.Context(), token.Value()); err != nil {
				t.Errorf("revoked again: %v", err)
			}
			if got := b.dialed.String(); strings.Trim(strings.ReplaceAll(got, "api.github.com:443", ""), "\n") != "" {
				t.Errorf("dialed %q", got)
			}
		})
	}
}

// TestInstallations: one App, several owners, of both kinds and however they are
// spelt; each is looked for once.
func TestInstallations(t *testing.T) {
	b := newBench(t, nil)
	for range 2 {
		for _, owner := range []string{"Acme", "acme", "ACME", "octocat", "OctoCat"} {
			repository, canonical := "DOCS", "Docs"
			if strings.EqualFold(owner, "octocat") {
				repository, canonical = "hello", "hello"
			}
			token, err := b.app.Mint(t.Context(), grant(t, "read", owner, repository))
			if err != nil {
				t.Fatalf("%s: %v", owner, err)
			}
			if !strings.EqualFold(token.Owner, owner) || token.Owner == "acme" || !slices.Equal(token.Repositories, []string{canonical}) {
				t.Errorf("%s: the token is %v", owner, token)
			}
		}
	}
	for key, want := range map[string]int{"GET users/Acme/installation": 1, "GET orgs/Acme/installation": 1, "GET users/acme/installation": 0, "GET users/octocat/installation": 1} {
		if got := b.github.Requests(key); got != want {
			t.Errorf("%d times %s, want %d", got, key, want)
		}
	}
}

// TestInstallationComesAndGoes: that there is none is not remembered, and one that
// was made anew is found.
func TestInstallationComesAndGoes(t *testing.T) {
	b := newBench(t, nil)
	g := grant(t, "read", "late", "app")
	_, err := b.app.Mint(t.Context(), g)
	failure(t, err, rest.ReasonNotInstalled)
	late := &githubtest.Account{ID: 21, Login: "late", Permissions: b.github.Accounts[0].Permissions, Repositories: []string{"app"}}
	b.github.Lock()
	b.github.Accounts = append(b.github.Accounts, late)
	b.github.Unlock()
	for _, id := range []int64{21, 22} {
		b.github.Lock()
		late.ID = id
		b.github.Unlock()
		if _, err := b.app.Mint(t.Context(), g); err != nil {
			t.Errorf("installation %d: %v", id, err)
		}
	}
	b.github.Lock()
	late.Suspended = true
	b.github.Unlock()
	_, err = b.app.Mint(t.Context(), g)
	if e := failure(t, err, rest.ReasonNotPermitted); !strings.Contains(e.Error(), "suspended") {
		t.Error(e)
	}
	b.github.Lock()
	late.Suspended, b.github.Accounts = false, b.github.Accounts[:2]
	b.github.Unlock()
	_, err = b.app.Mint(t.Context(), g)
	failure(t, err, rest.ReasonNotInstalled)
}

func TestEnterpriseServer(t *testing.T) {
	for _, base := range []string{"https://github.example.com", "https://GitHub.example.com/api/v3", "https://github.example.com:443/api/v3/"} {
		b := newBench(t, nil, func(f *githubtest.Server, c *githubauth.Config) { f.Base, c.APIBaseURL = "/api/v3", base })
		token, err := b.app.Mint(t.Context(), grant(t, "repo-write", "Acme", "shop"))
		if err != nil {
			t.Fatalf("%s: %v", base, err)
		}
		who, err := b.app.Identity(t.Context(), token)
		want := githubauth.Identity{Name: "acme-helper[bot]", Email: "99+acme-helper[bot]@users.noreply.github.example.com", GitHost: "github.example.com"}
		if err != nil || who != want {
			t.Errorf("%s: the identity is %+v, %v", base, who, err)
		}
		if err := b.app.Revoke(t.Context(), token.Value()); err != nil || len(b.github.Alive()) != 0 {
			t.Errorf("%s: revoked with %v; alive are %q", base, err, b.github.Alive())
		}
		if got := strings.Fields(b.dialed.String()); len(got) == 0 || slices.ContainsFunc(got, func(addr string) bool { return addr != "github.example.com:443" }) {
			t.Errorf("%s: dialed %q", base, got)
		}
	}
}

func TestHosts(t *testing.T) {
	for base, want := range map[string]githubauth.Hosts{
		"":                                   {Git: "github.com", API: "api.github.com"},
		"https://api.github.com":             {Git: "github.com", API: "api.github.com"},
		"https://api.acme.ghe.com/":          {Git: "acme.ghe.com", API: "api.acme.ghe.com"},
		"https://github.example.com/api/v3/": {Git: "github.example.com", API: "github.example.com"},
		"https://git.example.com:8443":       {Git: "git.example.com:8443", API: "git.example.com:8443"},
		"https://api.example.com/":           {Git: "api.example.com", API: "api.example.com"},
	} {
		if got, err := githubauth.ParseHosts(base); err != nil || got != want {
			t.Errorf("%q: %+v, %v, want %+v", base, got, err, want)
		}
	}
	for _, base := range []string{"http://api.github.com/", "api.github.com", "https://", "https://u:geheim@api.github.com/", "https://api.github.com/?x=geheim", "https://api.github.com/#geheim", "https://geheim\x00/", "ftp://x/"} {
		_, err := githubauth.NewApp(githubauth.Config{AppID: 1, Signer: new(githubauth.Key), APIBaseURL: base})
		if err == nil || strings.Contains(err.Error(), "geheim") {
			t.Errorf("%q: %v", base, err)
		}
	}
}

func TestIdentity(t *testing.T) {
	b := newBench(t, nil)
	want := githubauth.Identity{Name: "acme-helper[bot]", Email: "99+acme-helper[bot]@users.noreply.github.com", GitHost: "github.com"}
	for range 3 {
		if who, err := b.app.Identity(t.Context(), githubauth.Token{}); err != nil || who != want {
			t.Errorf("the identity is %+v, %v", who, err)
		}
	}
	if n := b.github.Requests("GET app"); n != 1 {
		t.Errorf("asked %d times", n)
	}
}

func TestOutside(t *testing.T) {
	b := newBench(t, nil)
	for _, test := range []struct {
		owner string
		names []string
		want  []string
	}{
		{"Acme", []string{"shop", "site"}, nil},
		{"acme", []string{"shop", "hello", "gone"}, []string{"hello", "gone"}},
		{"nobody", []string{"shop"}, []string{"shop"}},
	} {
		got, err := b.app.Outside(t.Context(), grant(t, "read", test.owner, test.names...))
		if err != nil || !slices.Equal(got, test.want) {
			t.Errorf("%s %v: outside are %v, %v; want %v", test.owner, test.names, got, err, test.want)
		}
	}
	for _, bad := range [][2]string{{"a/b", "shop"}, {"Acme", "../x"}, {"Acme", ""}} {
		forged := grant(t, "read", "Acme", "shop")
		forged.Owner, forged.Repositories = bad[0], []string{bad[1]}
		_, err := b.app.Outside(t.Context(), forged)
		failure(t, err, rest.ReasonInvalidGrant)
	}
}

func TestNewApp(t *testing.T) {
	key := new(githubauth.Key)
	for _, c := range []githubauth.Config{{}, {AppID: 1}, {Signer: key}, {AppID: -1, Signer: key}} {
		if _, err := githubauth.NewApp(c); err == nil {
			t.Errorf("%+v makes an App", c)
		}
	}
	if _, err := githubauth.NewApp(githubauth.Config{AppID: 1, Signer: key}); err != nil {
		t.Error(err)
	}
	if _, err := key.Sign(nil); err == nil {
		t.Error("the zero Key signs")
	}
}

// TestConcurrentMints: each caller gets what it asked for.
func TestConcurrentMints(t *testing.T) {
	b := newBench(t, nil)
	profiles, names := scope.Builtin(), []string{"shop", "site", "Docs"}
	var wg sync.WaitGroup
	values := make([]string, 24)
	for i := range values {
		profile, name := profiles[i%len(profiles)], names[i%len(names)]
		g := grant(t, profile.Name, "Acme", name)
		wg.Go(func() {
			token, err := b.app.Mint(t.Context(), g)
			if err != nil || !maps.Equal(token.Permissions, profile.Permissions) || !slices.Equal(token.Repositories, []string{name}) {
				t.Errorf("%s, %s: %v, %v", profile.Name, name, token, err)
			}
			values[i] = token.Value()
		})
	}
	wg.Wait()
	slices.Sort(values)
	if n := len(slices.Compact(values)); n != 24 {
		t.Errorf("%d different tokens", n)
	}
}
