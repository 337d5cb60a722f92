package github

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// A bench is a server with real clients: they reach it by its real names, through a
// proxy that leads every name here.
type bench struct {
	*Server
	client *http.Client
	env    []string
}

func newBench(t *testing.T) *bench {
	t.Helper()
	s, c := start(t)
	srv := httptest.NewUnstartedServer(s)
	cert, ca := certificate(t)
	srv.EnableHTTP2 = true
	srv.TLS = &tls.Config{Certificates: []tls.Certificate{cert}}
	srv.Config.ErrorLog = log.New(io.Discard, "", 0)
	srv.StartTLS()
	t.Cleanup(srv.Close)
	proxy := httptest.NewServer(connectTo(srv.Listener.Addr().String()))
	t.Cleanup(proxy.Close)
	home := t.TempDir()
	file := filepath.Join(home, "ca.pem")
	if err := os.WriteFile(file, ca, 0o644); err != nil {
		t.Fatal(err)
	}
	return &bench{Server: s, client: c, env: []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + home, "LC_ALL=C", "HTTPS_PROXY=" + proxy.URL, "https_proxy=" + proxy.URL,
		"SSL_CERT_FILE=" + file, "GIT_SSL_CAINFO=" + file, "CURL_CA_BUNDLE=" + file,
		"GIT_CONFIG_NOSYSTEM=1", "GIT_TERMINAL_PROMPT=0", "GH_PROMPT_DISABLED=1", "GH_NO_UPDATE_NOTIFIER=1",
		"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@docs.example", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@docs.example",
		"GIT_CONFIG_COUNT=2", "GIT_CONFIG_KEY_0=credential.helper",
		`GIT_CONFIG_VALUE_0=!f() { [ -z "$GH_TOKEN" ] || printf 'username=x-access-token\npassword=%s\n' "$GH_TOKEN"; }; f`,
		"GIT_CONFIG_KEY_1=protocol.file.allow", "GIT_CONFIG_VALUE_1=always",
	}}
}

// certificate makes one for both names that signs itself.
func certificate(t *testing.T) (tls.Certificate, []byte) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, DNSNames: Hosts,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key},
		pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// connectTo is a proxy whose every tunnel ends at one address.
func connectTo(addr string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host, _, _ := net.SplitHostPort(r.Host)
		if r.Method != http.MethodConnect || !slices.Contains(Hosts, host) {
			http.Error(w, "no", http.StatusForbidden)
			return
		}
		up, err := net.Dial("tcp", addr)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		down, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			up.Close()
			return
		}
		_, _ = io.WriteString(down, "HTTP/1.1 200 OK\r\n\r\n")
		done := make(chan struct{}, 2)
		pipe := func(to, from net.Conn) {
			_, _ = io.Copy(to, from)
			to.Close()
			from.Close()
			done <- struct{}{}
		}
		go pipe(up, down)
		go pipe(down, up)
		<-done
		<-done
	})
}

// run runs a program in a directory with a token in its environment; "" is none.
func (b *bench) run(t *testing.T, dir, token string, argv ...string) (int, string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Dir, cmd.Env = dir, b.env
	if token != "" {
		cmd.Env = append(cmd.Environ(), "GH_TOKEN="+token)
	}
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatalf("%s: %v", strings.Join(argv, " "), err)
	}
	return cmd.ProcessState.ExitCode(), out.String()
}

// must runs a program that must succeed.
func (b *bench) must(t *testing.T, dir, token string, argv ...string) string {
	t.Helper()
	code, out := b.run(t, dir, token, argv...)
	if code != 0 {
		t.Fatalf("%s: exit %d: %s", strings.Join(argv, " "), code, out)
	}
	return out
}

// refused runs a program that must fail and say so in the words.
func (b *bench) refused(t *testing.T, dir, token, words string, argv ...string) {
	t.Helper()
	code, out := b.run(t, dir, token, argv...)
	if code == 0 || !strings.Contains(out, words) {
		t.Errorf("%s: exit %d, without %q: %s", strings.Join(argv, " "), code, words, out)
	}
}

// commit writes a file into a clone and commits it.
func (b *bench) commit(t *testing.T, dir, name, content string) {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
	b.must(t, dir, "", "git", "add", "-A")
	b.must(t, dir, "", "git", "commit", "-q", "-m", "change "+name)
}

const denied = "Permission to acme/app.git denied to sallyport-demo[bot]."

func TestGit(t *testing.T) {
	b := newBench(t)
	for _, profile := range []string{"read", "issues-write", "review-write", "repo-write", "everything"} {
		t.Run(profile, func(t *testing.T) {
			token, dir := newToken(t, b.Server, b.client, profile, "app"), t.TempDir()
			clone := filepath.Join(dir, "app")
			b.must(t, dir, token, "git", "clone", "-q", "https://github.com/acme/app.git")
			b.must(t, clone, token, "git", "fetch", "-q", "origin")
			b.refused(t, dir, token, "Repository not found.", "git", "clone", "https://github.com/acme/lib")
			b.refused(t, dir, token, "Repository not found.", "git", "clone", "https://github.com/acme/vault")
			b.refused(t, dir, token, "Repository not found.", "git", "clone", "https://github.com/other/hidden")
			b.must(t, dir, token, "git", "clone", "-q", "https://github.com/other/open")
			b.must(t, clone, token, "git", "checkout", "-q", "-b", "by-"+profile)
			b.commit(t, clone, "by.txt", profile)
			push := []string{"git", "push", "-q", "origin", "HEAD"}
			if !profiles[profile].has("contents", "write") {
				b.refused(t, clone, token, denied, push...)
				return
			}
			b.must(t, clone, token, push...)
			b.commit(t, clone, "count.txt", "a line more\n")
			b.commit(t, clone, ".github/workflows/own.yml", "on: push\n")
			b.commit(t, clone, "after.txt", "hides it behind another\n")
			if profiles[profile].has("workflows", "write") {
				b.must(t, clone, token, push...)
				return
			}
			b.refused(t, clone, token, "refusing to allow a GitHub App to create or update workflow `.github/workflows/own.yml` without `workflows` permission", push...)
			if sha := b.world.repo("acme", "app").git.branch(t.Context(), "by-"+profile); sha == strings.TrimSpace(b.must(t, clone, "", "git", "rev-parse", "HEAD")) {
				t.Error("the refused push is there all the same")
			}
			b.must(t, clone, token, "git", "push", "-q", "origin", "HEAD~2:by-"+profile) // what comes before the workflow
		})
	}
}

// TestGitWithout shows what nobody, a token that is no more, and a token of other
// permissions get.
func TestGitWithout(t *testing.T) {
	b := newBench(t)
	dir := t.TempDir()
	b.refused(t, dir, "", "could not read Username", "git", "clone", "https://github.com/acme/app")
	b.must(t, dir, "", "git", "clone", "-q", "https://github.com/acme/site.git")
	b.commit(t, filepath.Join(dir, "site"), "x", "x")
	b.refused(t, filepath.Join(dir, "site"), "", "could not read Username", "git", "push", "origin", "HEAD")

	token := newToken(t, b.Server, b.client, "read", "app", "site")
	b.refused(t, filepath.Join(dir, "site"), token, "Permission to acme/site.git denied", "git", "push", "origin", "HEAD")
	if a := ask(t, b.client, "DELETE", "/installation/token", token, nil); a.status != 204 {
		t.Fatalf("revoke: %d %s", a.status, a.text)
	}
	b.refused(t, dir, token, "Invalid username or token.", "git", "clone", "https://github.com/acme/app")

	a := mintAt(t, b.Server, b.client, "acme", object{"repositories": []string{"app"}, "permissions": permissions{"issues": "write"}})
	b.refused(t, dir, a.body["token"].(string), "Write access to repository not granted.", "git", "clone", "https://github.com/acme/app")
}

// TestGitDepth fetches and pushes what takes several requests: less than all commits,
// then more, and a pack that git sends in chunks.
func TestGitDepth(t *testing.T) {
	b := newBench(t)
	token, dir := newToken(t, b.Server, b.client, "repo-write", "app"), t.TempDir()
	b.must(t, dir, token, "git", "clone", "-q", "--depth=1", "--branch="+featureBranch, "--no-single-branch", "https://github.com/acme/app")
	clone := filepath.Join(dir, "app")
	if code, _ := b.run(t, clone, "", "git", "merge-base", "origin/main", "HEAD"); code == 0 {
		t.Error("a clone of depth 1 has a merge base")
	}
	b.must(t, clone, token, "git", "fetch", "-q", "--deepen=10")
	base := strings.TrimSpace(b.must(t, clone, "", "git", "merge-base", "origin/main", "HEAD"))
	if subject := b.must(t, clone, "", "git", "log", "-1", "--format=%s", base); subject != fmt.Sprintf("count to %d\n", featureBase) {
		t.Errorf("the merge base is %q", subject)
	}
	noise := make([]byte, 3<<20)
	if _, err := rand.Read(noise); err != nil {
		t.Fatal(err)
	}
	b.commit(t, clone, "noise", string(noise))
	b.must(t, clone, token, "git", "push", "-q", "origin", "HEAD:noise")
	b.must(t, clone, token, "git", "push", "-q", "origin", ":noise")
	b.refused(t, clone, token, "deny updating a hidden ref", "git", "push", "origin", "HEAD:refs/pull/2/head")
}

func TestCurl(t *testing.T) {
	b := newBench(t)
	token := newToken(t, b.Server, b.client, "read", "app")
	out := b.must(t, t.TempDir(), token, "curl", "-sS", "-i", "-H", "Authorization: Bearer "+token, "https://api.github.com/repos/acme/app")
	for _, want := range []string{"200", `"full_name":"acme/app"`, "x-accepted-github-permissions: metadata=read", "x-ratelimit-remaining: "} {
		if !strings.Contains(strings.ToLower(out), want) {
			t.Errorf("no %q in %s", want, out)
		}
	}
	out = b.must(t, t.TempDir(), token, "curl", "-sS", "-o", "/dev/null", "-w", "%{http_code}", "-X", "POST", "-d", `{"title":"x"}`,
		"-H", "Authorization: Bearer "+token, "https://api.github.com/repos/acme/app/issues")
	if out != "403" {
		t.Errorf("opening an issue: %s, want 403", out)
	}
}

// TestEnterprise reaches the same by the names and paths of an Enterprise Server.
func TestEnterprise(t *testing.T) {
	b := newBench(t)
	token, dir := newToken(t, b.Server, b.client, "issues-write", "app"), t.TempDir()
	b.env = append(b.env, "GH_ENTERPRISE_TOKEN="+token, "GH_HOST="+EnterpriseHost)
	b.must(t, dir, token, "git", "clone", "-q", "https://"+EnterpriseHost+"/acme/app")
	b.refused(t, dir, token, "Repository not found.", "git", "clone", "https://"+EnterpriseHost+"/acme/lib")
	clone := filepath.Join(dir, "app")
	for _, args := range [][]string{
		{"issue", "view", "1"}, {"pr", "view", "2"}, {"issue", "create", "--title", "x", "--body", "y"}, {"api", "repos/acme/app"},
	} {
		b.must(t, clone, "", append([]string{gh()}, args...)...)
	}
	b.refused(t, clone, "", inaccessible, gh(), "pr", "review", "2", "--approve")
	out := b.must(t, dir, "", "curl", "-sS", "-i", "-H", "Authorization: token "+token, "https://"+EnterpriseHost+"/api/v3/installation/repositories")
	if !strings.Contains(out, "3.17.0") || !strings.Contains(out, `"total_count":1`) {
		t.Errorf("the API says %s", out)
	}
}
