package github

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/cgi"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// maxPush bounds what one request of git may carry, in bytes.
const maxPush = 64 << 20

// A gitRequest is one request of git's smart HTTP protocol.
type gitRequest struct {
	owner, name, service string // git-upload-pack or git-receive-pack
	advertise            bool   // GET .../info/refs
}

// parseGit understands /owner/name[.git]/info/refs?service= and .../git-upload-pack.
func parseGit(r *http.Request) (gitRequest, bool) {
	parts := strings.SplitN(strings.TrimPrefix(r.URL.Path, "/"), "/", 3)
	if len(parts) != 3 {
		return gitRequest{}, false
	}
	q := gitRequest{owner: parts[0], name: strings.TrimSuffix(parts[1], ".git"), service: parts[2]}
	if q.service == "info/refs" && r.Method == http.MethodGet {
		q.service, q.advertise = r.URL.Query().Get("service"), true
	} else if r.Method != http.MethodPost {
		return q, false
	}
	return q, q.service == "git-upload-pack" || q.service == "git-receive-pack"
}

// serveGit serves github.com, which here is git alone.
func (s *Server) serveGit(w http.ResponseWriter, r *http.Request) {
	q, ok := parseGit(r)
	if !ok {
		http.Error(w, "Not Found", http.StatusNotFound)
		return
	}
	repo, t, err := s.admit(r, q)
	if err != nil {
		refuseGit(w, err)
		return
	}
	body, err := readPush(w, r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if q.service == "git-receive-pack" && !q.advertise {
		refused, err := receive(r.Context(), repo.git, body, t.Permissions.has("workflows", "write"))
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		if refused != nil {
			w.Header().Set("Content-Type", "application/x-git-receive-pack-result")
			_, _ = w.Write(refused) // a client that has gone
			return
		}
		defer s.pushed(context.WithoutCancel(r.Context()), repo)
	}
	runBackend(w, r, repo, q, body)
}

// A gitRefusal has the words of github.com's git, which are not those of its API.
type gitRefusal struct {
	status  int
	message string
}

func (e *gitRefusal) Error() string { return e.message }

func refuseGit(w http.ResponseWriter, err error) {
	var e *gitRefusal
	if !errors.As(err, &e) {
		e = &gitRefusal{http.StatusInternalServerError, err.Error()}
	}
	if e.status == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", `Basic realm="GitHub"`)
	}
	w.Header().Set("Content-Type", "text/plain") // git shows it as "remote: ..."
	w.WriteHeader(e.status)
	fmt.Fprintln(w, e.message)
}

// admit judges a request of git: contents=read to fetch what is private,
// contents=write to push.
func (s *Server) admit(r *http.Request, q gitRequest) (*repository, *token, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	repo := s.world.repo(q.owner, q.name)
	push := q.service == "git-receive-pack"
	c, err := s.identify(r)
	if err != nil {
		return nil, nil, &gitRefusal{401, "Invalid username or token. Password authentication is not supported for Git operations."}
	}
	if c.token == nil {
		switch {
		case push:
			return nil, nil, &gitRefusal{401, "No anonymous write access."}
		case repo == nil || repo.private:
			return nil, nil, &gitRefusal{401, "Repository not found."}
		}
		return repo, nil, nil
	}
	level := "read"
	if push {
		level = "write"
	}
	covered := c.token.covers(repo)
	switch {
	case repo == nil || repo.private && !covered:
		return nil, nil, &gitRefusal{404, "Repository not found."}
	case covered && c.token.Permissions.has("contents", level), !push && !repo.private:
		return repo, c.token, nil
	case push && (!covered || c.token.Permissions.has("contents", "read")):
		return nil, nil, &gitRefusal{403, fmt.Sprintf("Permission to %s.git denied to %s[bot].", repo.fullName(), Slug)}
	}
	return nil, nil, &gitRefusal{403, "Write access to repository not granted."} // its words for reading, too
}

// readPush reads the body: the CGI of the standard library takes no chunked one.
func readPush(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	var from io.Reader = http.MaxBytesReader(w, r.Body, maxPush)
	if r.Header.Get("Content-Encoding") == "gzip" {
		z, err := gzip.NewReader(from)
		if err != nil {
			return nil, fmt.Errorf("read the request: %w", err)
		}
		from = io.LimitReader(z, maxPush)
	}
	body, err := io.ReadAll(from)
	if err != nil {
		return nil, fmt.Errorf("read the request: %w", err)
	}
	return body, nil
}

// runBackend hands the request to git http-backend, without the credential.
func runBackend(w http.ResponseWriter, r *http.Request, repo *repository, q gitRequest, body []byte) {
	programs, err := exec.CommandContext(r.Context(), "git", "--exec-path").Output()
	if err != nil {
		http.Error(w, "git is missing", http.StatusInternalServerError)
		return
	}
	root := filepath.Dir(filepath.Dir(string(repo.git)))
	r = r.Clone(r.Context())
	for _, name := range []string{"Authorization", "Content-Encoding", "Transfer-Encoding"} {
		r.Header.Del(name)
	}
	r.URL.Path = "/" + repo.fullName() + ".git/" + q.service
	if q.advertise {
		r.URL.Path = "/" + repo.fullName() + ".git/info/refs"
	}
	r.Body, r.ContentLength, r.TransferEncoding = io.NopCloser(bytes.NewReader(body)), int64(len(body)), nil
	backend := cgi.Handler{
		Path: filepath.Join(strings.TrimSpace(string(programs)), "git-http-backend"),
		Env: repo.git.env("GIT_PROJECT_ROOT="+root, "GIT_HTTP_EXPORT_ALL=1",
			"GIT_PROTOCOL="+r.Header.Get("Git-Protocol"), "GIT_HTTP_MAX_REQUEST_BUFFER=64M"),
	}
	backend.ServeHTTP(w, r)
}

// pushed moves open pull requests along with their branches.
func (s *Server) pushed(ctx context.Context, repo *repository) {
	s.mu.Lock()
	defer s.mu.Unlock()
	repo.pushed = s.now()
	s.follow(ctx, repo)
}

// follow updates the heads of the open pull requests. s.mu must be held.
func (s *Server) follow(ctx context.Context, repo *repository) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	for _, i := range repo.issues {
		if i.pull == nil || i.state() != "OPEN" {
			continue
		}
		head, base := repo.git.branch(ctx, i.pull.head), repo.git.branch(ctx, i.pull.base)
		if base != "" {
			i.pull.baseSHA = base
		}
		if head == "" || head == i.pull.headSHA {
			continue
		}
		if err := repo.git.setRef(ctx, fmt.Sprintf("refs/pull/%d/head", i.number), head, i.pull.headSHA); err == nil {
			i.pull.headSHA, i.updated = head, s.now()
		}
	}
}
