// Package rest makes requests to GitHub's REST API: one at a time, again where that may
// help, with an Error that says what to do and holds no credential. It knows no
// operation of that API; who calls does.
package rest

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"sallyport/githubauth/plain"

	"github.com/google/go-github/v62/github"
)

const (
	// DefaultBaseURL is the API of github.com.
	DefaultBaseURL = "https://api.github.com/"

	maxAnswer = 8 << 20 // bytes; a repository takes some 6 kB, and there may be 500
	userAgent = "sallyport"
)

// A Dial opens a connection, as net.Dialer.DialContext does.
type Dial func(ctx context.Context, network, addr string) (net.Conn, error)

// ParseBase checks the address of an API and completes it: GitHub Enterprise
// Server's is under /api/v3/.
func ParseBase(base string) (*url.URL, error) {
	if base == "" {
		base = DefaultBaseURL
	}
	u, err := url.Parse(base)
	switch {
	case err != nil:
		return nil, errors.New("the address of GitHub's API is not a URL")
	case u.Scheme != "https":
		return nil, fmt.Errorf("the address of GitHub's API has to begin with https://, not %q", plain.Line(u.Scheme))
	case u.User != nil || u.RawQuery != "" || u.Fragment != "" || u.Hostname() == "":
		return nil, errors.New("the address of GitHub's API is a host and a path, such as https://github.example.com/api/v3/")
	}
	u.Host = strings.ToLower(u.Host)
	if right := publicAPI(u); right != "" {
		return nil, fmt.Errorf("that is not the address of GitHub's API, which is %s", right)
	}
	client, err := github.NewClient(nil).WithEnterpriseURLs(u.String(), u.String())
	if err != nil {
		return nil, errors.New("the address of GitHub's API is not a URL")
	}
	return client.BaseURL, nil
}

// publicAPI is the address that u should be, where u is of github.com or of a
// ghe.com without being that of an API; "" where there is nothing to say. Such an
// address would be taken for a GitHub Enterprise Server's.
func publicAPI(u *url.URL) string {
	host := strings.TrimSuffix(u.Hostname(), ".")
	right := ""
	switch rest, of := strings.CutSuffix(host, ".ghe.com"); {
	case host == "github.com" || strings.HasSuffix(host, ".github.com"):
		right = "api.github.com"
	case host == "ghe.com" || of && rest == "api":
		return "https://api.NAME.ghe.com/"
	case of:
		right = "api." + rest[strings.LastIndex(rest, ".")+1:] + ".ghe.com"
	default:
		return ""
	}
	if u.Hostname() == right && (u.Path == "" || u.Path == "/") {
		return ""
	}
	return "https://" + right + "/"
}

// NewTransport trusts roots, the system's where nil, and goes through the proxy
// that the environment names.
func NewTransport(roots *x509.CertPool, dial Dial) http.RoundTripper {
	if dial == nil {
		dial = (&net.Dialer{Timeout: attemptTimeout}).DialContext
	}
	return capped{&http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		DialContext:         dial,
		ForceAttemptHTTP2:   true,
		TLSClientConfig:     &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12},
		TLSHandshakeTimeout: attemptTimeout,
		IdleConnTimeout:     time.Minute,
		MaxIdleConns:        8,
	}}
}

// capped bounds what is read of an answer, of which go-github reads all.
type capped struct{ next http.RoundTripper }

func (c capped) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := c.next.RoundTrip(req)
	if err == nil {
		resp.Body = struct {
			io.Reader
			io.Closer
		}{io.LimitReader(resp.Body, maxAnswer), resp.Body}
	}
	return resp, err
}

// An Endpoint is a GitHub to which requests go with one kind of credential.
type Endpoint struct {
	base *url.URL
	http *http.Client
}

// NewEndpoint follows no redirect: it would carry the credential along.
func NewEndpoint(base *url.URL, transport http.RoundTripper) *Endpoint {
	return &Endpoint{base, &http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// client is made for each request: go-github's remembers a rate limit and then
// refuses by itself, and that is GitHub's to say.
func (e *Endpoint) client() *github.Client {
	client := github.NewClient(e.http)
	client.BaseURL, client.UserAgent = e.base, userAgent
	return client
}
