package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"sallyport/compose/internet/anthropic"
	"sallyport/compose/internet/github"
)

// demoKey is the account that the model provider knows.
const demoKey = "sk-ant-demo-key"

// bulkMax bounds what one request of /bulk sends, in bytes.
const bulkMax = 4 << 30

// newSites is every web site of this internet, by host; dir is for their files, and appKey the key of
// GitHub's App, if there is one. Two of them are one server of the package github, which is
// returned, too.
func newSites(ctx context.Context, dir string, appKey []byte) (http.Handler, *github.Server, error) {
	git, err := newGitSite(ctx, dir)
	if err != nil {
		return nil, nil, err
	}
	hub, err := newGitHub(ctx, dir, appKey)
	if err != nil {
		return nil, nil, err
	}
	apt, err := newAptSite(time.Now())
	if err != nil {
		return nil, nil, err
	}
	npm, err := newNpmSite(time.Now())
	if err != nil {
		return nil, nil, err
	}
	pypi, err := newPyPISite(time.Now())
	if err != nil {
		return nil, nil, err
	}
	provider := &anthropic.Server{
		Keys: []string{demoKey}, Models: anthropic.Models,
		Script: anthropic.Demo("docs.example", "refused.example"),
	}
	sites := map[string]http.Handler{
		"api.anthropic.com": provider,
		"docs.example":      docsSite(),
		"git.docs.example":  git,
		"deb.example":       apt,
		"npm.docs.example":  npm,
		"pypi.docs.example": pypi,
		"grpc.docs.example": newGRPCSite(),
		"ws.docs.example":   http.HandlerFunc(webSocket),
	}
	for _, host := range github.Hosts {
		sites[host] = hub
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if site, ok := sites[hostOf(r)]; ok {
			site.ServeHTTP(w, r)
			return
		}
		fmt.Fprintf(w, "This is %s. No agent should read this under a strict policy.\n", hostOf(r))
	}), hub, nil
}

// newGitHub makes a GitHub whose acme/app has the git site's repository as submodule.
func newGitHub(ctx context.Context, dir string, appKey []byte) (*github.Server, error) {
	head, err := git(ctx, dir, "-C", filepath.Join(dir, "hello.git"), "rev-parse", "HEAD")
	if err != nil {
		return nil, err
	}
	own := filepath.Join(dir, "github")
	if err := os.Mkdir(own, 0o755); err != nil {
		return nil, fmt.Errorf("github: %w", err)
	}
	hub, err := github.New(ctx, github.Config{
		Dir: own, Key: appKey, Submodule: github.Submodule{URL: "https://git.docs.example/hello.git", Commit: head},
	})
	if err != nil {
		return nil, fmt.Errorf("github: %w", err)
	}
	return hub, nil
}

// docsSite is a plain site, with what tests of a tunnel want of one.
func docsSite() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintln(w, "This is docs.example, which the policy allows.")
	})
	mux.HandleFunc("GET /redirect", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, r.FormValue("to"), http.StatusFound)
	})
	mux.HandleFunc("GET /headers", func(w http.ResponseWriter, r *http.Request) {
		_ = r.Header.Write(w) // a client that has gone
	})
	mux.HandleFunc("GET /bulk", func(w http.ResponseWriter, r *http.Request) {
		n, err := strconv.ParseInt(r.FormValue("bytes"), 10, 64)
		if err != nil || n < 0 || n > bulkMax {
			http.Error(w, fmt.Sprintf("bytes must be a number up to %d", int64(bulkMax)), http.StatusBadRequest)
			return
		}
		w.Header().Set("Content-Length", strconv.FormatInt(n, 10))
		_, _ = io.CopyN(w, zeros{}, n)
	})
	mux.HandleFunc("POST /sink", func(w http.ResponseWriter, r *http.Request) {
		n, err := io.Copy(io.Discard, r.Body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		fmt.Fprintln(w, n)
	})
	mux.HandleFunc("GET /drip", drip)
	mux.HandleFunc("GET /tls", tlsPage)
	var s stage
	mux.HandleFunc("GET /events", s.events)
	mux.HandleFunc("GET /poll", s.poll)
	mux.HandleFunc("POST /go", s.goOn)
	return mux
}

// drip sends one line a second for as long as ?for= says, a minute at most.
func drip(w http.ResponseWriter, r *http.Request) {
	d, err := time.ParseDuration(r.FormValue("for"))
	if err != nil || d > time.Minute {
		http.Error(w, "for must be a duration of a minute at most", http.StatusBadRequest)
		return
	}
	stream := http.NewResponseController(w)
	for end := time.Now().Add(d); time.Now().Before(end); {
		if _, err := fmt.Fprintln(w, "drip"); err != nil || stream.Flush() != nil {
			return
		}
		select {
		case <-r.Context().Done():
			return
		case <-time.After(time.Second):
		}
	}
}

// zeros is an endless stream.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// hostOf is the host that a request names, without a port.
func hostOf(r *http.Request) string {
	host := r.Host
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	return strings.ToLower(host)
}
