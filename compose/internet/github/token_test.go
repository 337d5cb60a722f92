package github

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

const (
	notGranted = "The permissions requested are not granted to this installation."
	notThere   = "There is at least one repository that does not exist or is not accessible to the parent installation."
)

func TestMint(t *testing.T) {
	s, c := start(t)
	for _, one := range []struct {
		name, owner string
		body        any
		status      int
		says        string // the message, or what the answer has
		repos       []string
		selection   string
	}{
		{"both", "acme", object{"repositories": []string{"app"}, "permissions": profiles["read"]}, 201, `"contents":"read"`, []string{"app"}, "selected"},
		{"in another case", "acme", object{"repositories": []string{"APP", "app"}}, 201, `"contents":"write"`, []string{"app"}, "selected"},
		{"no body", "acme", nil, 201, `"administration":"write"`, []string{"app", "lib", "site"}, "selected"},
		{"empty lists", "acme", object{"repositories": []string{}, "permissions": permissions{}}, 201, `"administration":"write"`, []string{"app", "lib", "site"}, "selected"},
		{"no repositories", "solo", object{"permissions": permissions{"issues": "read"}}, 201, `"metadata":"read"`, []string{"notes"}, "all"},
		{"a permission of nobody's", "acme", object{"permissions": permissions{"secrets": "read"}}, 422, notGranted, nil, ""},
		{"a level too high", "acme", object{"permissions": permissions{"metadata": "write"}}, 422, "Invalid request", nil, ""},
		{"not granted here", "solo", object{"permissions": permissions{"workflows": "write"}}, 422, notGranted, nil, ""},
		{"unknown permission", "acme", object{"permissions": permissions{"everything": "write"}}, 422, "Invalid request", nil, ""},
		{"not chosen", "acme", object{"repositories": []string{"app", "vault"}}, 422, notThere, nil, ""},
		{"another owner's", "acme", object{"repositories": []string{"notes"}}, 422, notThere, nil, ""},
		{"with the owner", "acme", object{"repositories": []string{"acme/app"}}, 422, notThere, nil, ""},
		{"no such installation", "other", nil, 404, "Not Found", nil, ""},
		{"no JSON", "acme", "text", 400, "Problems parsing JSON", nil, ""},
	} {
		a := mintAt(t, s, c, one.owner, one.body)
		if a.status != one.status || !strings.Contains(a.text, one.says) && !strings.HasPrefix(a.message(), one.says) {
			t.Errorf("%s: %d %s, want %d %s", one.name, a.status, a.text, one.status, one.says)
		}
		if one.status != 201 {
			continue
		}
		made := s.tokens[hashOf(a.body["token"].(string))]
		if !slices.Equal(made.Repositories, one.repos) || a.body["repository_selection"] != one.selection {
			t.Errorf("%s: the repositories are %v, %v", one.name, made.Repositories, a.body["repository_selection"])
		}
		expires, err := time.Parse(time.RFC3339, a.body["expires_at"].(string))
		if err != nil || !expires.Equal(made.Expires) || expires.After(time.Now().Add(tokenLife)) {
			t.Errorf("%s: it expires at %v", one.name, a.body["expires_at"])
		}
	}
}

// TestTokenEnds shows that a token is of no use after its end, of either kind, not
// even for what is public.
func TestTokenEnds(t *testing.T) {
	s, c := start(t)
	control := httptest.NewServer(s.Control())
	defer control.Close()
	gone := func(token, why string) {
		t.Helper()
		for _, path := range []string{"/repos/acme/app", "/repos/other/open", "/installation/repositories"} {
			if a := ask(t, c, "GET", path, token, nil); a.status != 401 || a.message() != "Bad credentials" {
				t.Errorf("%s, %s: %d %s", why, path, a.status, a.text)
			}
		}
		if a := ask(t, c, "DELETE", "/installation/token", token, nil); a.status != 401 {
			t.Errorf("%s, revoked again: %d", why, a.status)
		}
	}
	revoked := newToken(t, s, c, "read", "app")
	if a := ask(t, c, "GET", "/installation/repositories", revoked, nil); a.status != 200 || a.body["total_count"] != 1.0 {
		t.Errorf("before: %d %s", a.status, a.text)
	}
	if a := ask(t, c, "DELETE", "/installation/token", revoked, nil); a.status != 204 || a.text != "" {
		t.Errorf("revoke: %d %s", a.status, a.text)
	}
	gone(revoked, "revoked")

	put(t, control.URL, `{"tokenLife": "1h"}`)
	expired := newToken(t, s, c, "read", "app")
	put(t, control.URL, `{"skew": "2h"}`)
	gone(expired, "expired")
	put(t, control.URL, `{}`)

	live := newToken(t, s, c, "read", "app")
	if a := ask(t, c, "GET", "/repos/acme/app", live, nil); a.status != 200 {
		t.Errorf("live: %d %s", a.status, a.text)
	}
	gone("ghs_"+strings.Repeat("x", 36), "never minted")
	var list []token
	if err := json.Unmarshal(get(t, control.URL+"/github/tokens"), &list); err != nil {
		t.Fatal(err)
	}
	states := map[string]string{}
	for _, one := range list {
		states[one.Hash] = one.State + " " + one.RevokedBy
	}
	for token, want := range map[string]string{revoked: "revoked test", live: "live "} {
		if states[hashOf(token)] != want {
			t.Errorf("a token is %q, want %q", states[hashOf(token)], want)
		}
	}
	for _, path := range []string{"/github/tokens", "/github/requests"} {
		if text := get(t, control.URL+path); bytes.Contains(text, []byte("ghs_")) || !bytes.Contains(text, []byte(hashOf(live))) {
			t.Errorf("%s has a token, or not its hash: %s", path, text)
		}
	}
}

func get(t *testing.T, url string) []byte {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != 200 {
		t.Fatalf("%s: %d %v", url, resp.StatusCode, err)
	}
	return b
}

// put sets the faults.
func put(t *testing.T, control, faults string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), "PUT", control+"/github/faults", strings.NewReader(faults))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != 204 {
		t.Fatalf("set %s: %d", faults, resp.StatusCode)
	}
}

func TestFaults(t *testing.T) {
	s, c := start(t)
	control := httptest.NewServer(s.Control())
	defer control.Close()
	body := object{"repositories": []string{"app"}, "permissions": profiles["read"]}
	mint := func() answer { return mintAt(t, s, c, "acme", body) }

	put(t, control.URL, `{"only": "mint", "times": 2, "status": 503, "headers": {"Retry-After": "1"}}`)
	for i, want := range []int{503, 503, 201} {
		if a := mint(); a.status != want || (want == 503) != (a.header.Get("Retry-After") == "1") {
			t.Errorf("mint %d: %d, want %d", i, a.status, want)
		}
		if a := ask(t, c, "GET", "/repos/other/open", "", nil); a.status != 200 {
			t.Errorf("another request: %d", a.status)
		}
	}
	for scope, want := range map[string]string{
		"wider-permissions": `"administration":"write"`, "wider-repositories": `"repository_selection":"selected"`,
		"narrower-permissions": `"permissions":{"metadata":"read"}`, "narrower-repositories": `"repositories":[]`,
	} {
		put(t, control.URL, fmt.Sprintf(`{"scope": %q}`, scope))
		a := mint()
		if a.status != 201 || !strings.Contains(a.text, want) {
			t.Errorf("%s: %d %s", scope, a.status, a.text)
		}
		token, _ := a.body["token"].(string)
		lib := ask(t, c, "GET", "/repos/acme/lib", token, nil).status
		if (scope == "wider-repositories") != (lib == 200) {
			t.Errorf("%s: acme/lib is %d", scope, lib)
		}
	}
	put(t, control.URL, `{"scope": "unsaid"}`)
	if a := mint(); strings.Contains(a.text, "permissions") {
		t.Errorf("unsaid: %s", a.text)
	}
	put(t, control.URL, `{"skew": "-5m"}`)
	if a := mint(); a.status != 401 || !strings.Contains(a.message(), "'Issued at'") {
		t.Errorf("a clock behind: %d %s", a.status, a.text)
	} else if date, err := http.ParseTime(a.header.Get("Date")); err != nil || date.After(time.Now().Add(-4*time.Minute)) {
		t.Errorf("a clock behind says %s", a.header.Get("Date"))
	}
	put(t, control.URL, `{"truncate": true}`)
	req, _ := http.NewRequestWithContext(t.Context(), "GET", "https://"+APIHost+"/repos/other/open", nil)
	req.Header.Set("User-Agent", "test")
	resp, err := c.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if b, err := io.ReadAll(resp.Body); err == nil || len(b) == 0 {
		t.Errorf("a truncated answer: %d bytes, %v", len(b), err)
	}
	put(t, control.URL, `{}`)
	if a := mint(); a.status != 201 {
		t.Errorf("in the end: %d", a.status)
	}
}

// TestTokensAreApart uses twenty tokens at the same time, of different profiles and
// repositories: each does what it may, and the log tells them apart.
func TestTokensAreApart(t *testing.T) {
	s, c := start(t)
	type user struct{ token, repo, other, profile string }
	var users []user
	for i := range 20 {
		u := user{repo: "app", other: "lib", profile: []string{"read", "issues-write", "review-write", "repo-write"}[i%4]}
		if i%3 == 0 {
			u.repo, u.other = u.other, u.repo
		}
		u.token = newToken(t, s, c, u.profile, u.repo)
		users = append(users, u)
	}
	var all sync.WaitGroup
	for _, u := range users {
		all.Go(func() {
			issue := 403
			if profiles[u.profile].has("issues", "write") {
				issue = 201
			}
			for _, one := range []struct {
				method, path string
				want         int
			}{
				{"GET", "/repos/acme/" + u.repo, 200}, {"GET", "/repos/acme/" + u.other, 404},
				{"POST", "/repos/acme/" + u.repo + "/issues", issue}, {"POST", "/repos/acme/" + u.other + "/issues", 404},
				{"DELETE", "/installation/token", 204}, {"GET", "/repos/acme/" + u.repo, 401},
			} {
				if a := ask(t, c, one.method, one.path, u.token, object{"title": u.profile}); a.status != one.want {
					t.Errorf("%s, %s %s: %d, want %d", u.profile, one.method, one.path, a.status, one.want)
				}
			}
		})
	}
	all.Wait()
	for _, u := range users {
		got := s.log.after(0, hashOf(u.token))
		if len(got) != 6 || got[0].Path != "/repos/acme/"+u.repo || got[5].Status != 401 {
			t.Errorf("the log of one token has %d requests: %+v", len(got), got)
		}
	}
}
