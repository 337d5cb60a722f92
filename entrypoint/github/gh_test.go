package github

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func TestFreshen(t *testing.T) {
	env := []string{"PATH=/bin", "GIT_TOKEN=old", "GH_TOKEN=old", "GITHUB_TOKEN=mine", "OTHER=old", "GH_ENTERPRISE_TOKEN=old"}
	got := strings.Join(withToken(env, "new", false), " ")
	if want := "PATH=/bin GIT_TOKEN=new GH_TOKEN=new GITHUB_TOKEN=mine OTHER=old GH_ENTERPRISE_TOKEN=new"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	got = strings.Join(withToken(append(env, "GITHUB_ENTERPRISE_TOKEN=mine"), "new", true), " ")
	if want := "PATH=/bin GIT_TOKEN=new GITHUB_TOKEN=mine OTHER=old GH_ENTERPRISE_TOKEN=new GITHUB_ENTERPRISE_TOKEN=mine"; got != want {
		t.Errorf("for an Enterprise Server: %s, want %s", got, want)
	}
	if got := strings.Join(withToken([]string{"GH_TOKEN=new", "GITHUB_TOKEN=newer", "GH_ENTERPRISE_TOKEN=new"}, "new", true), " "); got != "GITHUB_TOKEN=newer GH_ENTERPRISE_TOKEN=new" {
		t.Errorf("with the fresh one set by hand: %s", got)
	}
	if got := strings.Join(withToken([]string{"GH_TOKEN=", "A"}, "new", false), " "); got != "GH_TOKEN= A" {
		t.Errorf("without a token to begin with: %s", got)
	}
}

func TestNextGh(t *testing.T) {
	dir := t.TempDir()
	gh := filepath.Join(dir, "gh")
	if _, err := nextGh([]string{"PATH=/run/sallyport/bin:" + dir}); err == nil || !strings.Contains(err.Error(), "not in this sandbox's image") {
		t.Errorf("without gh: %v", err)
	}
	if err := os.WriteFile(gh, []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{dir, "/run/sallyport/bin:" + dir, "/run/sallyport/bin/:.:relative:" + dir} {
		if got, err := nextGh([]string{"A=b", "PATH=" + path}); err != nil || got != gh {
			t.Errorf("PATH %s: %q, %v", path, got, err)
		}
	}
}

// TestGhToOtherHosts: gh itself, behind the front, has the run's token for the run's
// host, and that of an Enterprise Server for no github.com.
//
// probe: G8
// oracle: gh, which says whom it would show which token to
func TestGhToOtherHosts(t *testing.T) {
	for _, tt := range []struct {
		host, asked string
		gets        bool
	}{
		{"github.com", "github.com", true},
		{"github.com", "ghe.example", false},
		{"ghe.example", "ghe.example", true},
		{"ghe.example", "github.com", false},
		{"acme.ghe.com", "acme.ghe.com", true},
		{"github.com.example", "github.com", false},
		{"acmeghe.com", "github.com", false},
	} {
		a := Access{Host: tt.host, APIURL: "https://" + tt.host + "/api/v3/", Owner: "acme", Repositories: []string{"app"}}
		accessFile, tokenFile := put(t, a, "ghs_second")
		home := t.TempDir()
		environ := []string{"PATH=" + os.Getenv("PATH"), "HOME=" + home, "GH_CONFIG_DIR=" + home}
		for name, value := range Environment(a, "ghs_first", false, Identity{}) {
			environ = append(environ, name+"="+value)
		}
		program, environ, err := behind(environ, accessFile, tokenFile)
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(program, "auth", "token", "--hostname", tt.asked)
		cmd.Env = environ
		out, err := cmd.Output()
		if got := strings.TrimSpace(string(out)); tt.gets && (err != nil || got != "ghs_second") || !tt.gets && (err == nil || got != "") {
			t.Errorf("%s: for %s gh has the token %q, %v", tt.host, tt.asked, got, err)
		}
	}
}

func TestGhWithoutAccess(t *testing.T) {
	accessFile, tokenFile := put(t, access, "ghs_x")
	absent := filepath.Join(t.TempDir(), "absent")
	environ := []string{"PATH=" + os.Getenv("PATH")}
	for _, files := range [][2]string{{absent, tokenFile}, {accessFile, absent}} {
		if program, fresh, err := behind(environ, files[0], files[1]); err == nil {
			t.Errorf("%q: %s with %q", files, program, fresh)
		}
	}
	if _, _, err := behind(environ, accessFile, tokenFile); err != nil {
		t.Error(err)
	}
}
