package github

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"math/big"
	"net/http"
	"slices"
	"strings"
	"time"
)

// tokenLife is how long a token lives unless a fault says otherwise.
const tokenLife = time.Hour

// maxRepositories is how many a request for a token may name.
const maxRepositories = 500

// An installation is the App with one account.
type installation struct {
	id      int64
	account *account
	// repos are those that the account chose. If nil, all of its own.
	repos       []*repository
	permissions permissions
	created     time.Time
}

// selection is GitHub's word for which repositories there are.
func selection(chosen []*repository) string {
	if chosen == nil {
		return "all"
	}
	return "selected"
}

// repositories are what the installation covers. s.mu must be held.
func (s *Server) repositories(in *installation) []*repository {
	if in.repos != nil {
		return in.repos
	}
	return s.world.ownedBy(in.account)
}

// A token is an installation token. Its value is not kept.
type token struct {
	Hash         string      `json:"hash"` // see hashOf
	Installation int64       `json:"installation"`
	Owner        string      `json:"owner"`
	Permissions  permissions `json:"permissions"`
	Selection    string      `json:"repositorySelection"`
	Repositories []string    `json:"repositories"` // without the owner
	Created      time.Time   `json:"created"`
	Expires      time.Time   `json:"expires"`
	Revoked      *time.Time  `json:"revoked,omitempty"`
	RevokedBy    string      `json:"revokedBy,omitempty"` // the user agent that asked
	State        string      `json:"state"`               // live, expired or revoked; filled in for the control port

	repos []*repository
	used  int // requests
}

// covers says whether the token is for the repository; nil covers nothing.
func (t *token) covers(r *repository) bool {
	return t != nil && r != nil && slices.Contains(t.repos, r)
}

// state of the token at a time.
func (t *token) state(now time.Time) string {
	switch {
	case t.Revoked != nil:
		return "revoked"
	case !now.Before(t.Expires):
		return "expired"
	}
	return "live"
}

// hashOf is how logs and the control port name a token: the first half of its
// SHA-256, in hexadecimal.
func hashOf(value string) string {
	sum := sha256.Sum256([]byte(value))
	return hex.EncodeToString(sum[:16])
}

// newValue is "ghs_" and 36 letters and digits.
func newValue() string {
	const alphabet = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
	value := []byte("ghs_")
	for range 36 {
		n, err := rand.Int(rand.Reader, big.NewInt(int64(len(alphabet))))
		if err != nil {
			panic(err) // never: crypto/rand fails the program instead
		}
		value = append(value, alphabet[n.Int64()])
	}
	return string(value)
}

// A mintRequest is the body of POST /app/installations/{id}/access_tokens. What
// is left out means everything.
type mintRequest struct {
	Repositories  []string    `json:"repositories"`
	RepositoryIDs []int64     `json:"repository_ids"`
	Permissions   permissions `json:"permissions"`
}

// mint makes a token and returns its value. s.mu must be held.
func (s *Server) mint(in *installation, req mintRequest) (string, *token, error) {
	granted := maps.Clone(in.permissions)
	if len(req.Permissions) > 0 {
		if err := req.Permissions.validate(); err != nil {
			return "", nil, err
		}
		if !req.Permissions.within(in.permissions) {
			return "", nil, unprocessable("The permissions requested are not granted to this installation.")
		}
		granted = maps.Clone(req.Permissions)
		granted["metadata"] = "read" // comes with every other one
	}
	chosen, err := s.choose(in, req)
	if err != nil {
		return "", nil, err
	}
	granted, chosen = s.faults.scope(in, granted, chosen)
	now := s.now()
	value := newValue()
	t := &token{
		Hash: hashOf(value), Installation: in.id, Owner: in.account.login, Permissions: granted,
		Selection: selection(chosen), repos: chosen, Created: now, Expires: now.Add(s.faults.life()).Truncate(time.Second),
	}
	if chosen == nil {
		if t.repos, t.Selection = s.repositories(in), selection(in.repos); t.repos == nil {
			t.repos = []*repository{}
		}
	}
	for _, r := range t.repos {
		t.Repositories = append(t.Repositories, r.name)
	}
	s.tokens[t.Hash] = t
	return value, t, nil
}

// choose finds the repositories that a mint names; nil without any.
func (s *Server) choose(in *installation, req mintRequest) ([]*repository, error) {
	if len(req.Repositories)+len(req.RepositoryIDs) > maxRepositories {
		return nil, unprocessable("Too many repositories: at most %d can be requested.", maxRepositories)
	}
	var chosen []*repository
	pick := func(match func(*repository) bool) error {
		i := slices.IndexFunc(s.repositories(in), match)
		if i < 0 {
			return unprocessable("There is at least one repository that does not exist or is not accessible to the parent installation.")
		}
		if r := s.repositories(in)[i]; !slices.Contains(chosen, r) {
			chosen = append(chosen, r)
		}
		return nil
	}
	for _, name := range req.Repositories {
		if err := pick(func(r *repository) bool { return strings.EqualFold(r.name, name) }); err != nil {
			return nil, err
		}
	}
	for _, id := range req.RepositoryIDs {
		if err := pick(func(r *repository) bool { return r.id == id }); err != nil {
			return nil, err
		}
	}
	return chosen, nil
}

// A caller is who asks. The zero value is anybody.
type caller struct {
	token *token
	agent string
}

// present returns what the request shows as credential: the value, and whether
// it shows any. GitHub takes a token as password, or as name beside a password of no meaning.
func present(r *http.Request) (value string, any bool) {
	if name, password, ok := r.BasicAuth(); ok {
		if password == "" || password == "x-oauth-basic" {
			return name, true
		}
		return password, true
	}
	header := r.Header.Get("Authorization")
	if header == "" {
		return "", false
	}
	scheme, value, _ := strings.Cut(header, " ")
	if !strings.EqualFold(scheme, "token") && !strings.EqualFold(scheme, "bearer") {
		return "", true
	}
	return strings.TrimSpace(value), true
}

// identify finds the caller. Whoever shows a credential that does not hold gets
// nothing, not even what is public. s.mu must be held.
func (s *Server) identify(r *http.Request) (caller, error) {
	value, shown := present(r)
	if !shown {
		return caller{agent: r.UserAgent()}, nil
	}
	t := s.tokens[hashOf(value)]
	if t == nil || t.state(s.now()) != "live" {
		return caller{}, badCredentials()
	}
	t.used++
	return caller{token: t, agent: r.UserAgent()}, nil
}

// credential describes what the request shows, for the log: none, app, token or
// unknown, and the hash of what is not an App's.
func (s *Server) credential(r *http.Request) (kind, hash string) {
	value, shown := present(r)
	switch {
	case !shown:
		return "none", ""
	case strings.Count(value, ".") == 2:
		return "app", ""
	}
	hash = hashOf(value)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.tokens[hash] == nil {
		return "unknown", hash
	}
	return "token", hash
}
