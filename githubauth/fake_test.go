package githubauth_test

import (
	"crypto"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

const (
	testAppID = 4711
	testSlug  = "acme-helper"
	botID     = 99
)

// A repository or a permission that GitHub is asked for.
type asked struct {
	Repositories []string          `json:"repositories"`
	Permissions  map[string]string `json:"permissions"`
}

// given is what GitHub answers to that, and what a test changes in it.
type given struct {
	Token        string            `json:"token,omitempty"`
	ExpiresAt    any               `json:"expires_at,omitempty"`
	Permissions  map[string]string `json:"permissions,omitempty"`
	Selection    string            `json:"repository_selection,omitempty"`
	Repositories []map[string]any  `json:"repositories,omitempty"`
}

// An account is a user or an organization that has installed the App.
type account struct {
	id           int64
	login        string
	org          bool
	suspended    bool
	permissions  map[string]string
	repositories []string
}

// A fakeGitHub serves what githubauth asks for, and checks it as GitHub does. What
// GitHub would take and the package must not send is a failure of the test.
type fakeGitHub struct {
	t    testing.TB
	key  *rsa.PublicKey
	base string        // path of the API, "" or "/api/v3"
	skew time.Duration // its clock over ours

	mu       sync.Mutex
	accounts []*account
	tokens   map[string]bool // true while good
	count    map[string]int  // requests, by method and path
	asked    []asked
	sent     []string // the credentials of requests
	// wrong, where set, sees each request first and reports that it answered.
	wrong func(w http.ResponseWriter, r *http.Request, n int) bool
	lax   bool // it gives every permission
	// change alters what a token's request is answered with.
	change func(*given)
}

func (f *fakeGitHub) now() time.Time { return time.Now().Add(f.skew) }

func (f *fakeGitHub) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path, ok := strings.CutPrefix(r.URL.Path, f.base+"/")
	if !ok {
		f.t.Errorf("a request for %s: the API is under %q", r.URL.Path, f.base)
		f.say(w, 404, "Not Found")
		return
	}
	key := r.Method + " " + path
	f.mu.Lock()
	w.Header().Set("Date", f.now().UTC().Format(http.TimeFormat))
	f.count[key]++
	if _, credential, ok := strings.Cut(r.Header.Get("Authorization"), " "); ok {
		f.sent = append(f.sent, credential)
	}
	n, wrong := f.count[key], f.wrong
	f.mu.Unlock()
	if wrong != nil && wrong(w, r, n) { // it may hang
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	switch part := strings.Split(path, "/"); {
	case key == "DELETE installation/token":
		f.revoke(w, r)
	case key == "GET users/"+testSlug+"[bot]":
		f.json(w, 200, map[string]any{"id": botID, "login": testSlug + "[bot]"})
	case key == "GET user" && r.Header.Get("Authorization") == "Bearer "+testPAT:
		f.json(w, 200, map[string]any{"id": 7, "login": "octo-cat"})
	case !f.asApp(w, r):
	case key == "GET app":
		f.json(w, 200, map[string]any{"id": testAppID, "slug": testSlug})
	case len(part) == 3 && part[2] == "installation" && r.Method == "GET":
		f.find(w, func(a *account) bool { return strings.EqualFold(a.login, part[1]) && a.org == (part[0] == "orgs") })
	case len(part) == 4 && part[3] == "installation" && part[0] == "repos" && r.Method == "GET":
		f.find(w, func(a *account) bool {
			return strings.EqualFold(a.login, part[1]) && slices.Contains(a.repositories, part[2])
		})
	case len(part) == 4 && part[3] == "access_tokens" && r.Method == "POST":
		f.mint(w, r, part[2])
	default:
		f.t.Errorf("an unknown request: %s", key)
		f.say(w, 404, "Not Found")
	}
}

// asApp checks the JWT with nothing but the standard library.
func (f *fakeGitHub) asApp(w http.ResponseWriter, r *http.Request) bool {
	token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	part := strings.Split(token, ".")
	if !ok || len(part) != 3 {
		f.say(w, 401, "A JSON web token could not be decoded")
		return false
	}
	var header struct{ Alg, Typ string }
	var claims struct {
		Iss      string
		Iat, Exp *int64
	}
	signature, err := base64.RawURLEncoding.DecodeString(part[2])
	sum := sha256.Sum256([]byte(part[0] + "." + part[1]))
	if err != nil || !unpack(part[0], &header) || !unpack(part[1], &claims) || header.Alg != "RS256" || header.Typ != "JWT" ||
		rsa.VerifyPKCS1v15(f.key, crypto.SHA256, sum[:], signature) != nil {
		f.say(w, 401, "A JSON web token could not be decoded")
		return false
	}
	now := f.now().Unix()
	switch {
	case claims.Iss != fmt.Sprint(testAppID):
		f.say(w, 404, "Integration not found")
	case claims.Iat == nil || *claims.Iat > now:
		f.say(w, 401, "'Issued at' claim ('iat') must be an Integer representing the time that the assertion was issued")
	case claims.Exp == nil || *claims.Exp <= now:
		f.say(w, 401, "'Expiration time' claim ('exp') must be a numeric value representing the future time at which the assertion expires")
	case *claims.Exp > now+600 || *claims.Exp-*claims.Iat > 660:
		f.say(w, 401, "'Expiration time' claim ('exp') is too far in the future")
	default:
		return true
	}
	return false
}

func unpack(part string, into any) bool {
	text, err := base64.RawURLEncoding.DecodeString(part)
	return err == nil && json.Unmarshal(text, into) == nil
}

func (f *fakeGitHub) find(w http.ResponseWriter, is func(*account) bool) {
	i := slices.IndexFunc(f.accounts, is)
	if i < 0 {
		f.say(w, 404, "Not Found")
		return
	}
	a := f.accounts[i]
	answer := map[string]any{"id": a.id, "app_id": testAppID, "account": map[string]any{"login": a.login, "id": a.id * 10},
		"permissions": a.permissions, "repository_selection": "selected", "suspended_at": nil}
	if a.suspended {
		answer["suspended_at"] = f.now()
	}
	f.json(w, 200, answer)
}

func (f *fakeGitHub) mint(w http.ResponseWriter, r *http.Request, id string) {
	var want asked
	d := json.NewDecoder(r.Body)
	d.DisallowUnknownFields()
	if err := d.Decode(&want); err != nil {
		f.t.Errorf("a request for a token: %v", err)
	}
	if len(want.Repositories) == 0 || len(want.Permissions) == 0 {
		f.t.Errorf("a request for a token without a limit: %+v", want)
	}
	f.asked = append(f.asked, want)
	i := slices.IndexFunc(f.accounts, func(a *account) bool { return fmt.Sprint(a.id) == id && !a.suspended })
	if i < 0 {
		f.say(w, 404, "Not Found")
		return
	}
	a := f.accounts[i]
	answer := given{Token: fmt.Sprintf("ghs_%s%032d", testMark, len(f.tokens)), ExpiresAt: f.now().Add(time.Hour).Truncate(time.Second).UTC(),
		Permissions: maps.Clone(want.Permissions), Selection: "selected"}
	for name, level := range want.Permissions {
		if have := a.permissions[name]; have != level && have != "write" && !f.lax {
			f.say(w, 422, "The permissions requested are not granted to this installation.")
			return
		}
	}
	for _, name := range want.Repositories {
		i := slices.IndexFunc(a.repositories, func(have string) bool { return strings.EqualFold(have, name) })
		if i < 0 {
			f.say(w, 422, "There is at least one repository that does not exist or is not accessible to the parent installation.")
			return
		}
		answer.Repositories = append(answer.Repositories, map[string]any{"name": a.repositories[i], "full_name": a.login + "/" + a.repositories[i]})
	}
	if f.change != nil {
		f.change(&answer)
	}
	f.tokens[answer.Token] = true
	f.json(w, 201, answer)
}

func (f *fakeGitHub) revoke(w http.ResponseWriter, r *http.Request) {
	token, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !f.tokens[token] {
		f.say(w, 401, "Bad credentials")
		return
	}
	f.tokens[token] = false
	w.WriteHeader(204)
}

func (f *fakeGitHub) json(w http.ResponseWriter, code int, v any) {
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.WriteHeader(code)
	if err := json.NewEncoder(w).Encode(v); err != nil {
		f.t.Log(err)
	}
}

func (f *fakeGitHub) say(w http.ResponseWriter, code int, message string) {
	f.json(w, code, map[string]any{"message": message, "documentation_url": "https://docs.github.com/rest"})
}

// alive are the tokens that are good.
func (f *fakeGitHub) alive() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var alive []string
	for token, good := range f.tokens {
		if good {
			alive = append(alive, token)
		}
	}
	return alive
}

// all are the requests for tokens so far.
func (f *fakeGitHub) all() []asked {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.asked)
}

func (f *fakeGitHub) requests(key string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.count[key]
}

// testMark is in every token that the fake gives, testPAT is a static one.
const (
	testMark = "SeCrEt"
	testPAT  = "github_pat_11AAAASeCrEt_abcdefghijklmnopqrstuvwxyz"
)
