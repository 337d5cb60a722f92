package githubauth

import (
	"context"
	"fmt"
	"net/url"
	"regexp"
	"strings"

	"sallyport/githubauth/rest"
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
	base, err := rest.ParseBase(apiBaseURL)
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
	if name, ok := strings.CutPrefix(host, "api."); ok && (name == "github.com" || strings.HasSuffix(name, ".ghe.com")) {
		git = name
	}
	return Hosts{Git: git, API: host}
}

var loginForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,99}(\[bot\])?$`)

// account makes the identity of the account that a call answers with.
func account(ctx context.Context, client *rest.Endpoint, hosts Hosts, c rest.Call) (Identity, error) {
	got, err := client.Do(ctx, c)
	if err != nil {
		return Identity{}, err
	}
	var user struct {
		ID    int64  `json:"id"`
		Login string `json:"login"`
	}
	if err := rest.Decode(c.Op, got.Body, &user); err != nil {
		return Identity{}, err
	}
	if user.ID <= 0 || !loginForm.MatchString(user.Login) {
		return Identity{}, rest.Malformed(c.Op, "GitHub's answer names no account")
	}
	host, _, _ := strings.Cut(hosts.Git, ":")
	return Identity{
		Name:    user.Login,
		Email:   fmt.Sprintf("%d+%s@users.noreply.%s", user.ID, user.Login, host),
		GitHost: hosts.Git,
	}, nil
}
