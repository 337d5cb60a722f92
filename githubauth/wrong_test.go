package githubauth_test

import (
	"slices"
	"strings"
	"testing"

	"sallyport/githubauth"
	"sallyport/githubauth/githubtest"
	"sallyport/githubauth/rest"
)

// TestUnknownApp: a number that is no App's is told as that, not as an App that is
// not installed; and where none is installed, GitHub's words are there.
func TestUnknownApp(t *testing.T) {
	wrong := newBench(t, nil, func(_ *githubtest.Server, c *githubauth.Config) { c.AppID = 815 })
	right := newBench(t, nil)
	calls := map[string]func(*bench, string) error{
		"mint": func(b *bench, owner string) error {
			_, err := b.app.Mint(t.Context(), grant(t, "read", owner, "shop"))
			return err
		},
		"outside": func(b *bench, owner string) error {
			_, err := b.app.Outside(t.Context(), grant(t, "read", owner, "shop"))
			return err
		},
		"slug": func(b *bench, _ string) error {
			_, err := b.app.Slug(t.Context())
			return err
		},
	}
	for name, call := range calls {
		if err := call(right, "Acme"); err != nil {
			t.Errorf("%s with the right number: %v", name, err)
		}
		err := call(wrong, "Acme")
		e := failure(t, err, rest.ReasonUnauthorized)
		for _, part := range []string{"App 815", `"Integration not found"`} {
			if !strings.Contains(e.Error(), part) {
				t.Errorf("%s: no %q in %v", name, part, e)
			}
		}
		if strings.Contains(e.Error(), "installed") || e.Status != 404 || e.Retryable {
			t.Errorf("%s: %+v", name, e)
		}
		noSecrets(t, wrong, err)
	}
	e := failure(t, calls["mint"](right, "nobody"), rest.ReasonNotInstalled)
	for _, part := range []string{"App 4711 is not installed for nobody", `"Not Found"`} {
		if !strings.Contains(e.Error(), part) {
			t.Errorf("no %q in %v", part, e)
		}
	}
}

// TestNotTheAPI: the address of a GitHub's pages is refused with that of its API.
func TestNotTheAPI(t *testing.T) {
	for base, want := range map[string]string{
		"https://github.com":                "https://api.github.com/",
		"https://github.com/":               "https://api.github.com/",
		"https://GitHub.com:443/":           "https://api.github.com/",
		"https://github.com./":              "https://api.github.com/",
		"https://www.github.com/":           "https://api.github.com/",
		"https://github.com/api/v3/":        "https://api.github.com/",
		"https://api.github.com/api/v3/":    "https://api.github.com/",
		"https://api.github.com./":          "https://api.github.com/",
		"https://acme.ghe.com/":             "https://api.acme.ghe.com/",
		"https://ACME.ghe.com/api/v3":       "https://api.acme.ghe.com/",
		"https://uploads.acme.ghe.com/":     "https://api.acme.ghe.com/",
		"https://api.acme.ghe.com/api/v3/":  "https://api.acme.ghe.com/",
		"https://ghe.com/":                  "https://api.NAME.ghe.com/",
		"https://api.ghe.com/":              "https://api.NAME.ghe.com/",
		"https://api.github.com/repos/acme": "https://api.github.com/",
	} {
		if got, err := githubauth.ParseHosts(base); err == nil || !strings.HasSuffix(err.Error(), " "+want) {
			t.Errorf("%s: %+v, %v; want an error with %s", base, got, err, want)
		}
		if _, err := githubauth.NewApp(githubauth.Config{AppID: 1, Signer: new(githubauth.Key), APIBaseURL: base}); err == nil {
			t.Errorf("%s makes an App", base)
		}
	}
	for _, base := range []string{"https://notgithub.com/", "https://github.com.example/", "https://myghe.com/", "https://github.example.com/"} {
		if _, err := githubauth.ParseHosts(base); err != nil {
			t.Errorf("%s: %v", base, err)
		}
	}
}

// TestRenamedWhileKnown: the installation of an owner that has another name now is
// looked for again, so that its new name works, and the old one is told of.
func TestRenamedWhileKnown(t *testing.T) {
	b := newBench(t, nil)
	old := grant(t, "read", "Acme", "shop")
	if _, err := b.app.Mint(t.Context(), old); err != nil {
		t.Fatal(err)
	}
	good := len(b.github.Tokens())
	b.github.Lock()
	b.github.Accounts[0].Login = "NewName"
	b.github.Unlock()
	_, err := b.app.Mint(t.Context(), old)
	failure(t, err, rest.ReasonWiderScope) // it is what GitHub gave
	noSecrets(t, b, err)
	_, err = b.app.Mint(t.Context(), old)
	failure(t, err, rest.ReasonNotInstalled)
	if n := len(b.github.Alive()); n != good {
		t.Errorf("%d tokens are alive, want %d", n, good)
	}
	if token, err := b.app.Mint(t.Context(), grant(t, "read", "newname", "shop")); err != nil || token.Owner != "NewName" {
		t.Errorf("%v, %v", token, err)
	}
}

// TestOutsideOfTheInstallation: what an installation lacks is told before a run.
func TestOutsideOfTheInstallation(t *testing.T) {
	b := newBench(t, nil)
	if got, err := b.app.Outside(t.Context(), grant(t, "read", "octocat", "hello")); err != nil || got != nil {
		t.Errorf("%v, %v", got, err)
	}
	_, err := b.app.Outside(t.Context(), grant(t, "issues-write", "octocat", "hello"))
	if e := failure(t, err, rest.ReasonNotPermitted); !strings.Contains(e.Error(), `does not have issues: write, which profile "issues-write" needs`) {
		t.Error(e)
	}
	b.github.Lock()
	b.github.Accounts[1].Suspended = true
	b.github.Unlock()
	_, err = b.app.Outside(t.Context(), grant(t, "read", "octocat", "hello", "gone"))
	if e := failure(t, err, rest.ReasonNotPermitted); !strings.Contains(e.Error(), "suspended") {
		t.Error(e)
	}
	if got, err := b.app.Outside(t.Context(), grant(t, "read", "Acme", "shop", "gone")); err != nil || !slices.Equal(got, []string{"gone"}) {
		t.Errorf("%v, %v", got, err)
	}
}
