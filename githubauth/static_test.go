package githubauth_test

import (
	"os"
	"strings"
	"testing"

	"sallyport/githubauth"
	"sallyport/githubauth/githubtest"
	"sallyport/githubauth/rest"
)

func TestStatic(t *testing.T) {
	b := newBench(t, nil)
	s, path := newStatic(t, b, "  "+githubtest.PAT+"\n")
	token, err := s.Mint(t.Context(), grant(t, "read", "Acme", "site", "shop"))
	if err != nil || token.Value() != githubtest.PAT {
		t.Fatalf("%v, %v", token, err)
	}
	if token.Downscoped || token.Permissions != nil || !token.Expires.IsZero() || strings.Join(token.Repositories, " ") != "shop site" {
		t.Errorf("the token is %+v", token)
	}
	who, err := s.Identity(t.Context(), token)
	if want := (githubauth.Identity{Name: "octo-cat", Email: "7+octo-cat@users.noreply.github.com", GitHost: "github.com"}); err != nil || who != want {
		t.Errorf("the identity is %+v, %v", who, err)
	}
	if err := s.Revoke(t.Context(), token.Value()); err != nil || b.github.Requests("DELETE installation/token") != 0 {
		t.Errorf("revoked: %v", err)
	}
	if hosts := s.Hosts(); hosts.Git != "github.com" {
		t.Errorf("the hosts are %v", hosts)
	}

	if s.Warning != "" {
		t.Error(s.Warning)
	}
	for mode, warned := range map[os.FileMode]bool{0o600: false, 0o640: true, 0o644: true} {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		open, err := githubauth.NewStatic(githubauth.StaticConfig{TokenFile: path})
		if err != nil || strings.Contains(open.Warning, "chmod 0400 "+path) != warned || !warned && open.Warning != "" {
			t.Errorf("mode %o: %q, %v", mode, open.Warning, err)
		}
	}

	// A new token counts at once, a file that went is an error.
	write := func(text string) {
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o400); err != nil {
			t.Fatal(err)
		}
	}
	write(githubtest.PAT + "2")
	if token, err := s.Mint(t.Context(), grant(t, "read", "Acme", "shop")); err != nil || token.Value() != githubtest.PAT+"2" {
		t.Errorf("%v, %v", token, err)
	}
	for _, bad := range []string{"", "two words", githubtest.PAT + "\n" + githubtest.PAT, strings.Repeat("x", 9000)} {
		write(bad)
		token, err := s.Mint(t.Context(), grant(t, "read", "Acme", "shop"))
		failure(t, err, rest.ReasonUnauthorized)
		if token.Value() != "" {
			t.Errorf("%.20q gives a token", bad)
		}
		noSecrets(t, b, err)
		if _, err := githubauth.NewStatic(githubauth.StaticConfig{TokenFile: path}); err == nil || strings.Contains(err.Error(), githubtest.PAT[:20]) {
			t.Errorf("%.20q: %v", bad, err)
		}
	}
}
