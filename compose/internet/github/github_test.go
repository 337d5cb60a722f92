package github

import (
	"bytes"
	"context"
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// start makes a server and a client that finds both of its names there.
func start(t *testing.T) (*Server, *http.Client) {
	t.Helper()
	s, err := New(t.Context(), Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(s)
	t.Cleanup(srv.Close)
	return s, &http.Client{Timeout: time.Minute, Transport: hostTransport{srv.Listener.Addr().String()}}
}

// hostTransport sends every request to one address, by plain HTTP.
type hostTransport struct{ addr string }

func (h hostTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Host, r.URL.Scheme, r.URL.Host = r.URL.Host, "http", h.addr
	return http.DefaultTransport.RoundTrip(r)
}

// claims are a JSON web token's.
type claims map[string]any

func goodClaims() claims {
	now := time.Now()
	return claims{"iss": AppID, "iat": now.Add(-time.Minute).Unix(), "exp": now.Add(9 * time.Minute).Unix()}
}

// sign makes an App's JSON web token by hand.
func sign(t *testing.T, key *rsa.PrivateKey, alg string, c claims) string {
	t.Helper()
	part := func(v any) string {
		b, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return base64.RawURLEncoding.EncodeToString(b)
	}
	text := part(map[string]string{"alg": alg, "typ": "JWT"}) + "." + part(c)
	sum := sha256.Sum256([]byte(text))
	signature, err := rsa.SignPKCS1v15(rand.Reader, key, crypto.SHA256, sum[:])
	if err != nil {
		t.Fatal(err)
	}
	return text + "." + base64.RawURLEncoding.EncodeToString(signature)
}

// An answer is what the API said.
type answer struct {
	status int
	header http.Header
	body   map[string]any // of an object
	text   string
}

func (a answer) message() string { s, _ := a.body["message"].(string); return s }

// ask sends a request to the API. Without a credential it has none.
func ask(t *testing.T, c *http.Client, method, path, credential string, body any) answer {
	t.Helper()
	var b bytes.Buffer
	if body != nil {
		if err := json.NewEncoder(&b).Encode(body); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, "https://"+APIHost+path, &b)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("User-Agent", "test")
	if credential != "" {
		req.Header.Set("Authorization", "Bearer "+credential)
	}
	resp, err := c.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	a := answer{status: resp.StatusCode, header: resp.Header, text: string(raw)}
	_ = json.Unmarshal(raw, &a.body) // an array stays text
	return a
}

// mintAt asks for a token of an owner's installation.
func mintAt(t *testing.T, s *Server, c *http.Client, owner string, body any) answer {
	t.Helper()
	id := map[string]int{"acme": 51001, "solo": 51002}[owner]
	return ask(t, c, "POST", fmt.Sprintf("/app/installations/%d/access_tokens", id), sign(t, s.key, "RS256", goodClaims()), body)
}

// The four profiles of the product, and one that may do more.
var profiles = map[string]permissions{
	"read":         {"contents": "read", "issues": "read", "pull_requests": "read", "metadata": "read"},
	"issues-write": {"contents": "read", "issues": "write", "pull_requests": "read", "metadata": "read"},
	"review-write": {"contents": "read", "issues": "write", "pull_requests": "write", "metadata": "read"},
	"repo-write":   {"contents": "write", "issues": "write", "pull_requests": "write", "metadata": "read"},
	"everything":   appPermissions,
}

// minted returns a token for repositories of acme.
func newToken(t *testing.T, s *Server, c *http.Client, profile string, repos ...string) string {
	t.Helper()
	a := mintAt(t, s, c, "acme", object{"permissions": profiles[profile], "repositories": repos})
	value, _ := a.body["token"].(string)
	if a.status != 201 || len(value) != 40 || !strings.HasPrefix(value, "ghs_") {
		t.Fatalf("mint: %d %s", a.status, a.text)
	}
	return value
}

func TestOperations(t *testing.T) {
	s, c := start(t)
	b64 := base64.StdEncoding.EncodeToString([]byte("new\n"))
	head := s.world.repo("acme", "app").git.branch(t.Context(), mainBranch)
	count := 0
	branch := func() string { count++; return fmt.Sprintf("b%d", count) }
	for _, op := range []struct {
		name         string
		method, path string
		body         func() any
		want         map[string]int // by profile
	}{
		{"see", "GET", "/repos/acme/app", nil, all(200)},
		{"read a file", "GET", "/repos/acme/app/contents/README.md", nil, all(200)},
		{"read issues", "GET", "/repos/acme/app/issues", nil, all(200)},
		{"read pulls", "GET", "/repos/acme/app/pulls", nil, all(200)},
		{"open an issue", "POST", "/repos/acme/app/issues", func() any { return object{"title": "x"} }, from("issues-write", 201)},
		{"comment an issue", "POST", "/repos/acme/app/issues/1/comments", func() any { return object{"body": "x"} }, from("issues-write", 201)},
		{"review", "POST", "/repos/acme/app/pulls/2/reviews", func() any { return object{"event": "APPROVE"} }, from("review-write", 200)},
		{"edit a pull", "PATCH", "/repos/acme/app/pulls/2", func() any { return object{"title": "y"} }, from("review-write", 200)},
		{"write a file", "PUT", "/repos/acme/app/contents/new%d.txt", func() any { return object{"message": "m", "content": b64} }, from("repo-write", 201)},
		{"write over a file", "PUT", "/repos/acme/app/contents/README.md", func() any { return object{"message": "m", "content": b64} }, from("repo-write", 422)},
		{"merge an issue", "PUT", "/repos/acme/app/pulls/1/merge", nil, from("repo-write", 404)},
		{"make a branch", "POST", "/repos/acme/app/git/refs", func() any { return object{"ref": "refs/heads/" + branch(), "sha": head} }, from("repo-write", 201)},
		{"release", "POST", "/repos/acme/app/releases", func() any { return object{"tag_name": branch()} }, from("repo-write", 201)},
		{"write a workflow", "PUT", "/repos/acme/app/contents/.github/workflows/x%d.yml",
			func() any { return object{"message": "m", "content": b64} }, from("everything", 201)},
		{"settings", "PATCH", "/repos/acme/app", func() any { return object{"description": "z"} }, from("everything", 200)},
		{"hooks", "POST", "/repos/acme/app/hooks", func() any { return object{} }, all(403)},
		{"another of the installation", "GET", "/repos/acme/lib", nil, all(404)},
		{"push to another", "PUT", "/repos/acme/lib/contents/x", func() any { return object{"message": "m", "content": b64} }, all(404)},
		{"outside of the installation", "GET", "/repos/acme/vault", nil, all(404)},
		{"another owner's", "GET", "/repos/other/hidden", nil, all(404)},
		{"another owner's, public", "GET", "/repos/other/open", nil, all(200)},
		{"write what is public", "POST", "/repos/other/open/issues", func() any { return object{"title": "x"} }, all(403)},
		{"the person's", "GET", "/user", nil, all(403)},
	} {
		for _, profile := range []string{"read", "issues-write", "review-write", "repo-write", "everything"} {
			token := newToken(t, s, c, profile, "app")
			var body any
			if op.body != nil {
				body = op.body()
			}
			path := op.path
			if strings.Contains(path, "%d") {
				count++
				path = fmt.Sprintf(path, count)
			}
			a := ask(t, c, op.method, path, token, body)
			if a.status != op.want[profile] {
				t.Errorf("%s, %s: %d %s, want %d", profile, op.name, a.status, a.text, op.want[profile])
			}
			if a.status == 403 && a.message() != "Resource not accessible by integration" {
				t.Errorf("%s, %s: the message is %q", profile, op.name, a.message())
			}
			if a.header.Get("X-Ratelimit-Limit") != "5000" || a.header.Get("X-Oauth-Scopes") != "" {
				t.Errorf("%s, %s: the headers are %v", profile, op.name, a.header)
			}
		}
	}
}

// all is the same status for every profile.
func all(status int) map[string]int { return from("read", status) }

// from is the status for a profile and every wider one; 403 for narrower ones.
func from(profile string, status int) map[string]int {
	want := map[string]int{}
	reached := false
	for _, one := range []string{"read", "issues-write", "review-write", "repo-write", "everything"} {
		reached = reached || one == profile
		if want[one] = 403; reached {
			want[one] = status
		}
	}
	return want
}
