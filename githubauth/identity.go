package githubauth

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strings"
)

// An Identity is whom commits are by.
type Identity struct {
	Name    string // such as "acme-helper[bot]"
	Email   string // the account's no-reply address, by which GitHub knows it
	GitHost string // such as "github.com"
}

// Hosts are the hosts that a run with a token needs, without ports where they are
// the usual ones.
type Hosts struct {
	Git string // of clones and pushes, such as "github.com"
	API string // such as "api.github.com"; the same as Git on GitHub Enterprise Server
}

// ParseHosts returns the hosts that go with the address of an API, DefaultAPIBaseURL
// where it is "".
func ParseHosts(apiBaseURL string) (Hosts, error) {
	base, err := parseBase(apiBaseURL)
	if err != nil {
		return Hosts{}, err
	}
	return hostsOf(base), nil
}

// hostsOf knows github.com, GitHub Enterprise Cloud with data residency
// (api.NAME.ghe.com) and GitHub Enterprise Server.
func hostsOf(base *url.URL) Hosts {
	host := strings.TrimSuffix(base.Host, ":443")
	git := host
	if rest, ok := strings.CutPrefix(host, "api."); ok && (rest == "github.com" || strings.HasSuffix(rest, ".ghe.com")) {
		git = rest
	}
	return Hosts{Git: git, API: host}
}

var slugForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,99}$`)

// Identity is the App's bot account. It is asked for once; t is the credential for
// that, because GitHub Enterprise Server may show accounts to no one without; the
// zero Token asks without. The error is an *Error.
func (a *App) Identity(ctx context.Context, t Token) (Identity, error) {
	a.mu.Lock()
	known := a.identity
	a.mu.Unlock()
	if known != (Identity{}) {
		return known, nil
	}
	const op = "find out the App's identity"
	ctx, cancel := context.WithTimeout(ctx, overallTimeout)
	defer cancel()
	slug, err := a.slug(ctx, op)
	if err != nil {
		return Identity{}, err
	}
	found, err := account(ctx, a.plain, a.Hosts(), call{op: op, method: http.MethodGet, token: t.Value(),
		path: "users/" + url.PathEscape(slug+"[bot]")})
	if err != nil {
		return Identity{}, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.identity = found
	return found, nil
}

// Slug asks GitHub what the App is called, such as "acme-helper". An answer says
// that the App's number and its key are right. It takes 30 s at most; the error is an
// *Error.
func (a *App) Slug(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, overallTimeout)
	defer cancel()
	return a.slug(ctx, "look for the GitHub App")
}

func (a *App) slug(ctx context.Context, op string) (string, error) {
	got, err := a.do(ctx, call{op: op, method: http.MethodGet, path: "app"})
	if err != nil {
		return "", err
	}
	var app struct {
		Slug string `json:"slug"`
	}
	if err := decode(op, got.body, &app); err != nil {
		return "", err
	}
	if !slugForm.MatchString(app.Slug) {
		return "", malformed(op, "GitHub's answer does not name the App")
	}
	return app.Slug, nil
}

var loginForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,99}(\[bot\])?$`)

// account makes the identity of the account that a call answers with.
func account(ctx context.Context, client *endpoint, hosts Hosts, c call) (Identity, error) {
	got, err := do(ctx, client, c)
	if err != nil {
		return Identity{}, err
	}
	var user struct {
		ID    int64  `json:"id"`
		Login string `json:"login"`
	}
	if err := decode(c.op, got.body, &user); err != nil {
		return Identity{}, err
	}
	if user.ID <= 0 || !loginForm.MatchString(user.Login) {
		return Identity{}, malformed(c.op, "GitHub's answer names no account")
	}
	host, _, _ := strings.Cut(hosts.Git, ":")
	return Identity{
		Name:    user.Login,
		Email:   fmt.Sprintf("%d+%s@users.noreply.%s", user.ID, user.Login, host),
		GitHost: hosts.Git,
	}, nil
}
