package github

import (
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/cgi"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// The test binary is also git's credential helper, by this variable.
const helperVar = "SALLYPORT_TEST_HELPER"

func TestMain(m *testing.M) {
	dir := os.Getenv(helperVar)
	if dir == "" {
		os.Exit(m.Run())
	}
	if err := credential(os.Args[1:], os.Stdin, os.Stdout, filepath.Join(dir, "access.json"), filepath.Join(dir, "token")); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

const goodToken = "ghs_0123456789abcdefghijABCDEFGHIJ012345"

// A gitServer is real git behind TLS that wants the token for acme/app.
type gitServer struct {
	*httptest.Server
	host string

	mu     sync.Mutex // guards what follows
	denied []string   // requests with another credential, or none for acme/other
	seen   []string   // the passwords that came
	moved  string     // where acme/moved leads, once it has a credential
}

// serveGit makes a repository acme/app with a main of 120 commits and a branch
// "feature" that left it 60 commits before its end, and serves it.
func serveGit(t *testing.T) *gitServer {
	t.Helper()
	root := t.TempDir()
	bare := filepath.Join(root, "acme", "app.git")
	work := filepath.Join(root, "work")
	script := `set -e
git init -q -b main "$1"; cd "$1"
i=0; while [ $i -lt 120 ]; do
  echo "commit refs/heads/main"; echo "committer a <a@example.com> $((1700000000 + i)) +0000"; echo "data 2"; echo "c"; 
  [ $i -eq 0 ] && printf 'M 100644 inline README\ndata 6\nhello\n\n'
  if [ $i -eq 60 ]; then echo "commit refs/heads/feature"; echo "committer a <a@example.com> 1700000061 +0000"; echo "data 2"; echo "f"; echo "from refs/heads/main"; printf 'M 100644 inline FEATURE\ndata 2\nf\n\n'; fi
  i=$((i + 1))
done | git fast-import --quiet
git clone -q --bare . "$2"; git --git-dir "$2" config http.receivepack true`
	run(t, root, nil, "sh", "-c", script, "sh", work, bare)
	s := &gitServer{}
	programs := strings.TrimSpace(run(t, root, nil, "git", "--exec-path"))
	backend := &cgi.Handler{Path: filepath.Join(programs, "git-http-backend"), Env: []string{"GIT_PROJECT_ROOT=" + root, "GIT_HTTP_EXPORT_ALL=1", "REMOTE_USER=x"}}
	s.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name, password, ok := r.BasicAuth()
		s.mu.Lock()
		defer s.mu.Unlock()
		if ok {
			s.seen = append(s.seen, password)
		}
		if password == goodToken && strings.HasPrefix(r.URL.Path, "/acme/moved.git/") {
			http.Redirect(w, r, s.moved+r.URL.RequestURI(), http.StatusFound)
			return
		}
		if name != "x-access-token" || password != goodToken || !strings.HasPrefix(r.URL.Path, "/acme/app.git/") {
			s.denied = append(s.denied, r.URL.Path)
			w.Header().Set("WWW-Authenticate", `Basic realm="GitHub"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		backend.ServeHTTP(w, r)
	}))
	t.Cleanup(s.Close)
	s.host = strings.TrimPrefix(s.URL, "https://")
	return s
}

// run runs a program and returns what it prints.
func run(t *testing.T, dir string, env []string, name string, args ...string) string {
	t.Helper()
	out, err := tryRun(t, dir, env, name, args...)
	if err != nil {
		t.Fatalf("%s %q: %v: %s", name, args, err, out)
	}
	return out
}

func tryRun(t *testing.T, dir string, env []string, name string, args ...string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.com",
		"GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@example.com"}, env...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// sandboxed sets this process's environment to what a sandbox with access has.
func (s *gitServer) sandboxed(t *testing.T, token string) {
	t.Helper()
	dir := t.TempDir()
	files := Files(Access{Host: s.host, Owner: "acme", Repositories: []string{"app", "moved"}}, token, nil)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		text := strings.ReplaceAll(string(f.Content), "/run/sallyport/bin/"+CredentialShim, self)
		if err := os.WriteFile(filepath.Join(dir, filepath.Base(f.Path)), []byte(text), os.FileMode(f.Mode)); err != nil {
			t.Fatal(err)
		}
	}
	ca := filepath.Join(dir, "ca.pem")
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}), 0o644); err != nil {
		t.Fatal(err)
	}
	for name, value := range map[string]string{
		"HOME": dir, "GIT_CONFIG_SYSTEM": filepath.Join(dir, "gitconfig"), "GIT_SSL_CAINFO": ca, "GIT_TERMINAL_PROMPT": "0", helperVar: dir,
		"GORACE":          "atexit_sleep_ms=0", // or each call of the helper takes a second longer
		"GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@example.com", "GIT_COMMITTER_NAME": "a", "GIT_COMMITTER_EMAIL": "a@example.com",
	} {
		t.Setenv(name, value)
	}
}

func TestCheckout(t *testing.T) {
	s := serveGit(t)
	s.sandboxed(t, goodToken)
	tests := []struct {
		name   string
		spec   CheckoutSpec
		branch string
		head   string // subject of the newest commit
		depth  string // commits of the branch that are there
		base   bool   // the merge base with main is there
	}{
		{"shallow", CheckoutSpec{Branch: "feature", Shallow: true}, "feature", "f", "1", false},
		{"shallow with a base", CheckoutSpec{Branch: "feature", BaseBranch: "main", Shallow: true}, "feature", "f", "1", false},
		{"to the merge base", CheckoutSpec{Branch: "feature", BaseBranch: "main"}, "feature", "f", "62", true},
		{"all of it", CheckoutSpec{Branch: "feature"}, "feature", "f", "62", true},
		{"a new branch from a base", CheckoutSpec{Branch: "fix/new", BaseBranch: "feature"}, "fix/new", "f", "62", false},
		{"a new branch from the default", CheckoutSpec{Branch: "fix/new", Shallow: true}, "fix/new", "c", "1", true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			tt.spec.URL = s.URL + "/acme/app.git"
			commit, err := checkout(t.Context(), tt.spec, dir)
			if err != nil {
				t.Fatal(err)
			}
			env := os.Environ()
			if got := run(t, dir, env, "git", "rev-parse", "HEAD"); got != commit || len(commit) != 41 {
				t.Errorf("the commit is %q, and is said to be %q", got, commit)
			}
			if got := strings.TrimSpace(run(t, dir, env, "git", "symbolic-ref", "--short", "HEAD")); got != tt.branch {
				t.Errorf("on the branch %q", got)
			}
			if got := strings.TrimSpace(run(t, dir, env, "git", "log", "-1", "--format=%s")); got != tt.head {
				t.Errorf("newest commit %q, want %q", got, tt.head)
			}
			if got := strings.TrimSpace(run(t, dir, env, "git", "rev-list", "--count", "HEAD")); got != tt.depth {
				t.Errorf("%s commits, want %s", got, tt.depth)
			}
			if _, err := tryRun(t, dir, env, "git", "merge-base", "HEAD", "origin/main"); (err == nil) != tt.base {
				t.Errorf("merge base: %v", err)
			}
			if got := run(t, dir, env, "git", "status", "--porcelain"); got != "" {
				t.Errorf("changes: %q", got)
			}
			// What the agent does next, by the same helper and by the ssh remote that is in
			// many a checkout.
			run(t, dir, env, "git", "fetch", "-q", "origin", "main")
			run(t, dir, env, "git", "ls-remote", "git@"+s.host+":acme/app.git")
			if found, err := tryRun(t, dir, env, "grep", "-r", "ghs_", "."); err == nil {
				t.Errorf("the token is in the workspace: %s", found)
			}
		})
	}
}

func TestCheckoutFails(t *testing.T) {
	s := serveGit(t)
	tests := []struct {
		name, token string
		spec        CheckoutSpec
		want        string
	}{
		{"a repository that is not listed", goodToken, CheckoutSpec{URL: "/acme/other.git", Branch: "main"}, "could not read Username"},
		{"a token that is over", "ghs_overoveroveroveroveroveroveroverover", CheckoutSpec{URL: "/acme/app.git", Branch: "main"}, "Authentication failed"},
		{"no such base", goodToken, CheckoutSpec{URL: "/acme/app.git", Branch: "new", BaseBranch: "nosuch"}, "nosuch"},
		{"a branch that is no name", goodToken, CheckoutSpec{URL: "/acme/app.git", Branch: "a..b"}, "a..b"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s.sandboxed(t, tt.token)
			dir := t.TempDir()
			tt.spec.URL = s.URL + tt.spec.URL
			_, err := checkout(t.Context(), tt.spec, dir)
			if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), tt.token) {
				t.Errorf("%v, want an error with %q and without the token", err, tt.want)
			}
			if left, _ := os.ReadDir(dir); len(left) > 0 {
				t.Errorf("left in the workspace: %v", left)
			}
		})
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, password := range s.seen {
		if password != goodToken && !strings.HasPrefix(password, "ghs_over") {
			t.Errorf("the server saw the password %q", password)
		}
	}

	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "mine"), []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := checkout(t.Context(), CheckoutSpec{URL: s.URL + "/acme/app.git", Branch: "main"}, dir); !errors.Is(err, ErrNotEmpty) {
		t.Errorf("a workspace with a file: %v", err)
	}
	if _, err := os.Stat(filepath.Join(dir, "mine")); err != nil {
		t.Errorf("the file is gone: %v", err)
	}
	if err := Checkout(t.Context(), strings.NewReader("nonsense"), io.Discard); err == nil {
		t.Error("nonsense was taken for a checkout")
	}
}

// TestTokenStaysHome: a submodule on another host gets no credential, although
// that host asks for one, and neither does the place that a repository of the list
// redirects to.
//
// probe: G8
// oracle: the other host, which counts requests and credentials
func TestTokenStaysHome(t *testing.T) {
	s := serveGit(t)
	var asked, got atomic.Int32
	other := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		if r.Header.Get("Authorization") != "" {
			got.Add(1)
		}
		w.Header().Set("WWW-Authenticate", `Basic realm="other"`)
		w.WriteHeader(http.StatusUnauthorized)
	}))
	defer other.Close()
	s.sandboxed(t, goodToken)
	dir := t.TempDir()
	if _, err := checkout(t.Context(), CheckoutSpec{URL: s.URL + "/acme/app.git", Branch: "main", Shallow: true}, dir); err != nil {
		t.Fatal(err)
	}
	env := append(os.Environ(), "GIT_SSL_NO_VERIFY=1")
	s.mu.Lock()
	s.moved = other.URL
	s.mu.Unlock()
	if out, err := tryRun(t, dir, env, "git", "ls-remote", s.URL+"/acme/moved.git"); err == nil {
		t.Errorf("followed to where it has no credential: %s", out)
	}
	if asked.Load() == 0 || got.Load() > 0 {
		t.Errorf("after a redirect the other host was asked %d times and got %d credentials", asked.Load(), got.Load())
	}
	for _, url := range []string{other.URL + "/acme/app.git", s.URL + "/acme/other.git"} {
		if out, err := tryRun(t, dir, env, "git", "submodule", "add", url, "sub"); err == nil {
			t.Errorf("%s: added without a credential: %s", url, out)
		}
	}
	if asked.Load() == 0 || got.Load() > 0 {
		t.Errorf("the other host was asked %d times and got %d credentials", asked.Load(), got.Load())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.denied) == 0 {
		t.Error("the repository that is not listed was not asked for")
	}
}
