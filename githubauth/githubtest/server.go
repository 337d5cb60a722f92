// Package githubtest is a GitHub in small, for the tests of whoever mints tokens: it
// checks an App's JWT as GitHub does, finds installations, mints tokens and revokes
// them, and tells afterwards what it was asked and which tokens are still good. It has
// no repositories: git, gh and the rest of the API are played by the demo's internet.
//
//	g := githubtest.New(t)
//	githubtest.Serve(t, g, listener)
//	app, err := githubauth.NewApp(githubauth.Config{AppID: githubtest.AppID, Signer: key, Roots: githubtest.Keys().Roots, Dial: dial})
//
// It imports nothing of ours: what GitHub checks is written down here once more, not
// taken from what it shall check.
package githubtest

import (
	"crypto/rsa"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

const (
	// AppID is the number of the one App.
	AppID = 4711
	// Slug is what the App is called unless a Server says otherwise.
	Slug = "acme-helper"
	// BotID is the number of the App's account.
	BotID = 99

	// Mark is in every token that a Server gives, PAT is a static one.
	Mark = "SeCrEt"
	PAT  = "github_pat_11AAAASeCrEt_abcdefghijklmnopqrstuvwxyz"
)

// An Account is a user or an organization that has installed the App.
type Account struct {
	ID           int64
	Login        string
	Organization bool
	Suspended    bool
	Permissions  map[string]string
	Repositories []string
}

// A Server serves what is asked of GitHub for tokens. What GitHub would take and nobody
// must send is a failure of the test: a request without repositories or permissions,
// and one that it does not know. Its lock guards its fields once it serves.
type Server struct {
	sync.Mutex

	Base     string         // path of the API, "" or "/api/v3"
	Slug     string         // of the App
	Key      *rsa.PublicKey // of the App
	Accounts []*Account
	Skew     time.Duration // its clock over ours
	Life     time.Duration // of tokens; if 0, an hour
	Lax      bool          // it gives every permission
	// Wrong, if set, sees each request first, with how many of its kind there have been,
	// and reports that it answered.
	Wrong func(w http.ResponseWriter, r *http.Request, n int) bool
	// Change, if set, alters what a request for a token is answered with.
	Change func(*Given)

	t      testing.TB
	tokens []*token
	count  map[string]int // requests, by method and path
	asked  []Asked
	sent   []string // the credentials of requests
}

// New returns a GitHub where an organization, Acme, and a user, octocat, have the App.
func New(t testing.TB) *Server {
	all := map[string]string{"contents": "write", "issues": "write", "pull_requests": "write", "metadata": "read"}
	read := map[string]string{"contents": "read", "issues": "read", "pull_requests": "read", "metadata": "read"}
	return &Server{
		t: t, Slug: Slug, Key: &Keys().App.PublicKey, count: make(map[string]int),
		Accounts: []*Account{
			{ID: 11, Login: "Acme", Organization: true, Permissions: all, Repositories: []string{"shop", "site", "Docs"}},
			{ID: 12, Login: "octocat", Permissions: read, Repositories: []string{"hello"}},
		},
	}
}

// Now is the Server's time.
func (s *Server) Now() time.Time { return time.Now().Add(s.Skew) }

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path, ok := strings.CutPrefix(r.URL.Path, s.Base+"/")
	if !ok {
		s.t.Errorf("a request for %s: the API is under %q", r.URL.Path, s.Base)
		s.say(w, 404, "Not Found")
		return
	}
	key := r.Method + " " + path
	s.Lock()
	w.Header().Set("Date", s.Now().UTC().Format(http.TimeFormat))
	s.count[key]++
	if _, credential, ok := strings.Cut(r.Header.Get("Authorization"), " "); ok {
		s.sent = append(s.sent, credential)
	}
	n, wrong := s.count[key], s.Wrong
	s.Unlock()
	if wrong != nil && wrong(w, r, n) { // it may hang
		return
	}
	s.Lock()
	defer s.Unlock()
	s.serve(w, r, key, strings.Split(path, "/"))
}

// serve answers a request that goes by key, whose path has these parts.
func (s *Server) serve(w http.ResponseWriter, r *http.Request, key string, part []string) {
	switch {
	case key == "DELETE installation/token":
		s.revoke(w, r)
	case key == "GET users/"+s.Slug+"[bot]":
		s.JSON(w, 200, map[string]any{"id": BotID, "login": s.Slug + "[bot]"})
	case key == "GET user" && r.Header.Get("Authorization") == "Bearer "+PAT:
		s.JSON(w, 200, map[string]any{"id": 7, "login": "octo-cat"})
	case !s.asApp(w, r):
	case key == "GET app":
		s.JSON(w, 200, map[string]any{"id": AppID, "slug": s.Slug})
	case len(part) == 3 && part[2] == "installation" && r.Method == "GET":
		s.find(w, func(a *Account) bool {
			return strings.EqualFold(a.Login, part[1]) && a.Organization == (part[0] == "orgs")
		})
	case len(part) == 4 && part[3] == "installation" && part[0] == "repos" && r.Method == "GET":
		s.find(w, func(a *Account) bool {
			return strings.EqualFold(a.Login, part[1]) && slices.Contains(a.Repositories, part[2])
		})
	case len(part) == 4 && part[3] == "access_tokens" && r.Method == "POST":
		s.mint(w, r, part[2])
	default:
		s.t.Errorf("an unknown request: %s", key)
		s.say(w, 404, "Not Found")
	}
}

func (s *Server) find(w http.ResponseWriter, is func(*Account) bool) {
	i := slices.IndexFunc(s.Accounts, is)
	if i < 0 {
		s.say(w, 404, "Not Found")
		return
	}
	a := s.Accounts[i]
	answer := map[string]any{"id": a.ID, "app_id": AppID, "account": map[string]any{"login": a.Login, "id": a.ID * 10},
		"permissions": a.Permissions, "repository_selection": "selected", "suspended_at": nil}
	if a.Suspended {
		answer["suspended_at"] = s.Now()
	}
	s.JSON(w, 200, answer)
}

// JSON writes an answer.
func (s *Server) JSON(w http.ResponseWriter, code int, v any) {
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.WriteHeader(code)
	if err := json.NewEncoder(w).Encode(v); err != nil {
		s.t.Log(err)
	}
}

func (s *Server) say(w http.ResponseWriter, code int, message string) {
	s.JSON(w, code, map[string]any{"message": message, "documentation_url": "https://docs.github.com/rest"})
}

// Requests is how many there have been of a method and path, such as "GET app".
func (s *Server) Requests(key string) int {
	s.Lock()
	defer s.Unlock()
	return s.count[key]
}

// Sent are the credentials of all requests.
func (s *Server) Sent() []string {
	s.Lock()
	defer s.Unlock()
	return slices.Clone(s.sent)
}
