package githubauth

import (
	"bytes"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"sync"

	"sallyport/githubauth/rest"
	"sallyport/githubauth/scope"
)

const maxTokenFile = 8 << 10 // bytes

// StaticConfig says where a static token is, and for which GitHub.
type StaticConfig struct {
	// TokenFile holds the token and nothing else. It is read for each run.
	TokenFile  string
	APIBaseURL string         // as Config.APIBaseURL
	Roots      *x509.CertPool // as Config.Roots
	Dial       rest.Dial      // as Config.Dial
}

// A Static hands out one token that somebody made, such as a personal access token.
// It can do all that it was made for, whatever a run asks for, and goes on after the
// run.
type Static struct {
	// Warning says that others than the file's owner could read it when it was first
	// read, "" where not.
	Warning string

	file   string
	base   *url.URL
	client *rest.Endpoint

	mu       sync.Mutex
	identity Identity // zero until known; guarded by mu
}

// NewStatic returns the Static that c describes, once it has read the token.
func NewStatic(c StaticConfig) (*Static, error) {
	base, err := rest.ParseBase(c.APIBaseURL)
	if err != nil {
		return nil, fmt.Errorf("use a static GitHub token: %w", err)
	}
	s := &Static{file: c.TokenFile, base: base, client: rest.NewEndpoint(base, rest.NewTransport(c.Roots, c.Dial))}
	if _, s.Warning, err = s.read(); err != nil {
		return nil, fmt.Errorf("use a static GitHub token: %w", err)
	}
	return s, nil
}

func (s *Static) read() (value, warning string, err error) {
	text, warning, err := readSecret(s.file, maxTokenFile)
	if err != nil {
		return "", "", err
	}
	defer clear(text)
	value = string(bytes.TrimSpace(text))
	if !isValue(value) {
		return "", "", errors.New(s.file + " does not hold a token alone")
	}
	return value, warning, nil
}

// Hosts are the hosts that a run needs.
func (s *Static) Hosts() Hosts { return hostsOf(s.base) }

// Mint returns the token as it is: not downscoped. The error is an *Error.
func (s *Static) Mint(_ context.Context, g scope.Grant) (Token, error) {
	const op = "use a static GitHub token"
	if err := g.Check(); err != nil {
		return Token{}, &rest.Error{Op: op, Reason: rest.ReasonInvalidGrant, Problem: err.Error(), Cause: err}
	}
	value, _, err := s.read()
	if err != nil {
		return Token{}, &rest.Error{Op: op, Reason: rest.ReasonUnauthorized, Problem: err.Error(), Cause: err}
	}
	t := NewToken(value)
	t.Owner, t.Repositories = g.Owner, slices.Sorted(slices.Values(g.Repositories))
	return t, nil
}

// Revoke does nothing: the token is not ours to end.
func (s *Static) Revoke(context.Context, string) error { return nil }

// Identity is the account whose token t is. It is asked for once.
func (s *Static) Identity(ctx context.Context, t Token) (Identity, error) {
	s.mu.Lock()
	known := s.identity
	s.mu.Unlock()
	if known != (Identity{}) {
		return known, nil
	}
	ctx, cancel := context.WithTimeout(ctx, rest.Timeout)
	defer cancel()
	found, err := account(ctx, s.client, s.Hosts(), rest.Call{Op: "find out whose the GitHub token is", Method: http.MethodGet, Token: t.Value(), Path: "user"})
	if err != nil {
		return Identity{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.identity = found
	return found, nil
}
