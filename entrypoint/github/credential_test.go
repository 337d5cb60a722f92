package github

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var access = Access{Host: "github.com", APIURL: "https://api.github.com/", Owner: "Acme", Repositories: []string{"app", "lib.js"}}

func TestCovers(t *testing.T) {
	tests := []struct {
		req  request
		want bool
	}{
		{request{"https", "github.com", "acme/app"}, true},
		{request{"https", "github.com", "acme/app.git"}, true},
		{request{"https", "GitHub.com", "ACME/App.git"}, true},
		{request{"https", "github.com", "acme/lib.js"}, true},
		{request{"https", "github.com", "acme/lib.js.git"}, true},
		{request{"https", "github.com", "acme/app.git/info/lfs"}, true},
		{request{"https", "github.com", "acme/app.git/info/lfs/objects/batch"}, true},

		{request{"http", "github.com", "acme/app.git"}, false},
		{request{"ssh", "github.com", "acme/app.git"}, false},
		{request{"https", "github.com:8443", "acme/app.git"}, false},
		{request{"https", "github.com.evil.example", "acme/app.git"}, false},
		{request{"https", "evilgithub.com", "acme/app.git"}, false},
		{request{"https", "api.github.com", "acme/app.git"}, false},
		{request{"https", "", "acme/app.git"}, false},
		{request{"https", "github.com", ""}, false},
		{request{"https", "github.com", "acme"}, false},
		{request{"https", "github.com", "acme/"}, false},
		{request{"https", "github.com", "acme/app2"}, false},
		{request{"https", "github.com", "acme/lib"}, false},
		{request{"https", "github.com", "other/app"}, false},
		{request{"https", "github.com", "other/acme/app"}, false},
		{request{"https", "github.com", "acme/app/../lib2"}, false},
		{request{"https", "github.com", "acme/app.git/info/lfsx"}, false},
		{request{"https", "github.com", "acme/%61pp"}, false},
		{request{"", "", ""}, false},
	}
	for _, tt := range tests {
		if got := access.covers(tt.req); got != tt.want {
			t.Errorf("%+v: %v", tt.req, got)
		}
	}
	if (Access{}).covers(request{"https", "", "/"}) {
		t.Error("no access covers something")
	}
}

// put lays out what a sandbox has and returns the paths of access and token.
func put(t *testing.T, a Access, token string) (string, string) {
	t.Helper()
	dir := t.TempDir()
	for _, f := range Files(a, token, nil) {
		if err := os.WriteFile(filepath.Join(dir, filepath.Base(f.Path)), f.Content, os.FileMode(f.Mode)); err != nil {
			t.Fatal(err)
		}
	}
	return filepath.Join(dir, filepath.Base(accessPath)), filepath.Join(dir, filepath.Base(TokenPath))
}

func TestCredential(t *testing.T) {
	accessFile, tokenFile := put(t, access, "ghs_first")
	const ask = "capability[]=authtype\nprotocol=https\nhost=github.com\npath=acme/app.git\nwwwauth[]=Basic realm=\"GitHub\"\n"
	answer := func(op, in string) (string, error) {
		var out strings.Builder
		err := credential([]string{op}, strings.NewReader(in), &out, accessFile, tokenFile)
		return out.String(), err
	}
	if got, err := answer("get", ask); err != nil || got != "username=x-access-token\npassword=ghs_first\n" {
		t.Errorf("%q, %v", got, err)
	}
	if err := os.WriteFile(tokenFile, []byte("ghs_second\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := answer("get", ask+"\nhost=evil.example\n"); err != nil || !strings.Contains(got, "password=ghs_second\n") {
		t.Errorf("after a refresh: %q, %v", got, err)
	}
	for _, tt := range [][2]string{
		{"store", ask}, {"erase", ask}, {"nosuch", ask},
		{"get", strings.Replace(ask, "acme", "other", 1)},
		{"get", strings.Replace(ask, "github.com", "evil.example", 1)},
		{"get", ask + "host=evil.example\n"}, // the last one counts, for git as well
		{"get", ""},
	} {
		if got, err := answer(tt[0], tt[1]); err != nil || got != "" {
			t.Errorf("%s %q: %q, %v", tt[0], tt[1], got, err)
		}
	}
	for _, in := range []string{"nonsense\n", "host=a\x00b\n", "host=" + strings.Repeat("x", maxRequest)} {
		if got, err := answer("get", in); err == nil || got != "" {
			t.Errorf("%.20q: %q, %v", in, got, err)
		}
	}
	if err := os.WriteFile(tokenFile, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := answer("get", ask); err == nil || got != "" {
		t.Errorf("without a token: %q, %v", got, err)
	}
}

// FuzzCredential: whatever git, or an agent in its place, asks, the token goes to
// the one host and the listed repositories only.
func FuzzCredential(f *testing.F) {
	f.Add("protocol=https\nhost=github.com\npath=acme/app.git\n\n")
	f.Add("protocol=https\nhost=github.com\npath=acme/../other/app.git\n")
	f.Add("protocol=https\nhost=github.com\nhost=evil.example\npath=acme/app\n")
	f.Add("protocol=https\r\nhost=github.com\r\npath=acme/app\r\n")
	f.Fuzz(func(t *testing.T, in string) {
		req, err := parseRequest(strings.NewReader(in))
		if err != nil || !access.covers(req) {
			return
		}
		path := strings.ToLower(strings.TrimPrefix(req.path, "/"))
		path, _, _ = strings.Cut(path, "/info/lfs")
		path = strings.TrimSuffix(path, ".git")
		if req.protocol != "https" || !strings.EqualFold(req.host, "github.com") || (path != "acme/app" && path != "acme/lib.js") {
			t.Errorf("the token goes to %+v, asked by %q", req, in)
		}
	})
}

func TestEnvironment(t *testing.T) {
	id := Identity{Name: "acme-bot[bot]", Email: "7+acme-bot[bot]@users.noreply.github.com"}
	env := Environment(access, "ghs_x", false, id)
	for name, want := range map[string]string{
		"GITHUB_TOKEN": "ghs_x", "GH_TOKEN": "ghs_x", "GIT_TOKEN": "ghs_x",
		"GITHUB_APP_PRIVATE_KEY_PATH": "", "GIT_AUTHOR_NAME": id.Name, "GIT_COMMITTER_EMAIL": id.Email,
		"GITHUB_API_URL": "https://api.github.com",
	} {
		if got, ok := env[name]; !ok || got != want {
			t.Errorf("%s = %q, want %q", name, got, want)
		}
	}
	if _, ok := env["GH_HOST"]; ok {
		t.Error("GH_HOST is set for github.com")
	}
	ghes := access
	ghes.Host, ghes.APIURL = "ghe.example", "https://ghe.example/api/v3/"
	env = Environment(ghes, "ghs_x", true, id)
	if env["GH_HOST"] != "ghe.example" || env["GH_ENTERPRISE_TOKEN"] != "ghs_x" || env["GITHUB_APP_PRIVATE_KEY_PATH"] != KeyPath {
		t.Errorf("for an Enterprise Server: %v", env)
	}
}

func TestFiles(t *testing.T) {
	modes := map[string]uint32{}
	for _, f := range Files(access, "ghs_x", []byte("KEY")) {
		modes[f.Path] = f.Mode
		if strings.Contains(string(f.Content), "ghs_x") != (f.Path == TokenPath) {
			t.Errorf("the token is in %s, or not in its file", f.Path)
		}
		if strings.Contains(string(f.Content), "KEY") != (f.Path == KeyPath) {
			t.Errorf("the key is in %s, or not in its file", f.Path)
		}
	}
	if modes[TokenPath] != 0o600 || modes[KeyPath] != 0o400 {
		t.Errorf("modes %v", modes)
	}
	for _, f := range Files(access, "ghs_x", nil) {
		if f.Path == KeyPath {
			t.Error("a key that was not given has a file")
		}
	}
}
