// Package github plays GitHub: an http.Handler for github.com and api.github.com
// that authenticates Apps, mints and revokes installation tokens, and serves
// repositories over REST, GraphQL and git. It is part of the demo's internet and
// of the tests, so that real git, real gh and curl can be run against the limits
// of a token without an account.
//
// It checks what the real one checks and says so in its words: the App's JSON web
// token (issuer, times, RS256 signature), that a token asks for nothing beyond its
// installation, and with each request that the token lives, sees the repository (404) and
// has the permission (403). Fields that a mint leaves out mean everything, as there.
// Pushes are enforced on the server: contents for the push, workflows for
// what touches a workflow file.
//
//	s, err := github.New(ctx, github.Config{Dir: dir})
//	http.ListenAndServeTLS(addr, cert, keyFile, s) // for github.Hosts
//	http.ListenAndServe(admin, s.Control())        // for tests, see control.go
//
// All state but the repositories is in memory. It knows the accounts and repositories
// of seed.go, one App and what coding agents do with them: no people's tokens, search, actions,
// forks or branch protection, and no rebase merges. In two points it is more lenient than the real one:
// classic projects, which GitHub has closed, are empty here instead of an error, since gh before
// 2.82 asks for them with each issue; and nobody reaches a rate limit but by a fault.
package github

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"
)

// The names that a Server answers for. The last is a GitHub Enterprise Server with the
// same accounts and repositories: git at its root, REST below /api/v3, GraphQL at /api/graphql.
const (
	Host           = "github.com"
	APIHost        = "api.github.com"
	EnterpriseHost = "ghes.docs.example"
)

// Hosts are the names that lead here.
var Hosts = []string{Host, APIHost, EnterpriseHost}

// enterpriseVersion is what the Enterprise Server says that it is.
const enterpriseVersion = "3.17.0"

// keyBits is the size of the App's key, GitHub's own.
const keyBits = 2048

// Config is what a Server is made from.
type Config struct {
	// Dir takes the repositories. It must exist.
	Dir string
	// Key is the App's private key, as KeyPEM gives it. If nil, one is made.
	Key []byte
	// Submodule is what acme/app has at vendor/hello. If zero, it has none.
	Submodule Submodule
}

// A Submodule is a repository on another host.
type Submodule struct{ URL, Commit string }

// A Server is GitHub. New makes it.
type Server struct {
	dir string
	key *rsa.PrivateKey
	api http.Handler
	log requestLog

	mu       sync.Mutex // guards what follows
	world    world
	installs []*installation
	tokens   map[string]*token // by the hash of its value
	faults   faults
}

// New makes the repositories and, where there is none, the App's key.
func New(ctx context.Context, c Config) (*Server, error) {
	key, err := appKey(c.Key)
	if err != nil {
		return nil, err
	}
	s := &Server{dir: c.Dir, key: key, tokens: map[string]*token{}}
	if err := s.seed(ctx, c.Submodule); err != nil {
		return nil, fmt.Errorf("make the repositories: %w", err)
	}
	s.api = s.routes()
	return s, nil
}

// now is the server's clock, which a fault may set wrong. s.mu must be held.
func (s *Server) now() time.Time { return time.Now().Add(s.faults.Skew.Duration) }

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	host := r.Host
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	host = strings.ToLower(host)
	s.mu.Lock()
	now := s.now()
	s.mu.Unlock()
	w.Header().Set("Date", now.UTC().Format(http.TimeFormat)) // the standard library leaves it
	w.Header().Set("Server", Host)
	w.Header().Set("X-Github-Request-Id", rand.Text())
	e := &entry{Time: time.Now(), Host: host, Method: r.Method, Path: r.URL.RequestURI(), Agent: r.UserAgent()}
	e.Auth, e.Token = s.credential(r)
	rec := &recorder{ResponseWriter: w, status: http.StatusOK}
	defer func() {
		e.Status = rec.status
		s.log.add(e)
	}()
	api := host == APIHost
	if host == EnterpriseHost {
		w.Header().Set("X-Github-Enterprise-Version", enterpriseVersion)
		r, api = enterprise(r)
	}
	switch {
	case s.fail(rec, r, api):
	case api:
		s.api.ServeHTTP(rec, r.WithContext(context.WithValue(r.Context(), entryKey{}, e)))
	case host == Host, host == EnterpriseHost:
		s.serveGit(rec, r)
	default:
		http.NotFound(rec, r)
	}
}

// enterprise takes the prefix off that an Enterprise Server's API has; without it, the request
// is git's.
func enterprise(r *http.Request) (*http.Request, bool) {
	prefix := "/api/v3"
	if r.URL.Path == "/api/graphql" {
		prefix = "/api"
	}
	if !strings.HasPrefix(r.URL.Path, prefix+"/") {
		return r, false
	}
	r = r.Clone(r.Context())
	r.URL.Path, r.URL.RawPath = strings.TrimPrefix(r.URL.Path, prefix), strings.TrimPrefix(r.URL.RawPath, prefix)
	return r, true
}

// entryKey is the context's key of the log entry of a request.
type entryKey struct{}

// A recorder remembers the status of an answer.
type recorder struct {
	http.ResponseWriter
	status int
}

func (r *recorder) WriteHeader(status int) {
	r.status = status
	r.ResponseWriter.WriteHeader(status)
}

// Unwrap serves http.ResponseController.
func (r *recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }
