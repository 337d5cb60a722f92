package main

import (
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sallyport/compose/internet/github"
)

// TestGitHub reaches the GitHub among the sites by its names; what it checks is
// tested in its own package.
func TestGitHub(t *testing.T) {
	h := newHits(io.Discard)
	_, client, _ := start(t, h)
	if status, body := get(t, client, "https://api.github.com/repos/other/open"); status != 200 || !strings.Contains(body, `"full_name":"other/open"`) {
		t.Errorf("the API answers %d %s", status, body)
	}
	if status, body := get(t, client, "https://github.com/other/open/info/refs?service=git-upload-pack"); status != 200 || !strings.Contains(body, "refs/heads/main") {
		t.Errorf("git answers %d %q", status, body)
	}
	if status, _ := get(t, client, "https://api.github.com/repos/acme/app"); status != 404 {
		t.Errorf("what is private answers nobody with %d", status)
	}
	req, err := http.NewRequestWithContext(t.Context(), "GET", "https://docs.example/", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.SetBasicAuth("x-access-token", "ghs_secret")
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if !slices.ContainsFunc(h.after(0), func(one hit) bool { return one.Name == "docs.example" && one.Auth == "Basic" }) {
		t.Errorf("no hit tells of the credential: %+v", h.after(0))
	}
}

// TestSubmodule holds that the submodule of acme/app is there to be fetched.
func TestSubmodule(t *testing.T) {
	dir := t.TempDir()
	if _, _, err := newSites(t.Context(), dir, nil); err != nil {
		t.Fatal(err)
	}
	app := filepath.Join(dir, "github", "acme", "app.git")
	modules, err := git(t.Context(), dir, "-C", app, "show", "main:.gitmodules")
	if err != nil || !strings.Contains(modules, "https://git.docs.example/hello.git") {
		t.Errorf("the submodules are %q, %v", modules, err)
	}
	entry, err := git(t.Context(), dir, "-C", app, "ls-tree", "--format=%(objecttype) %(objectname)", "main", "vendor/hello")
	if err != nil {
		t.Fatal(err)
	}
	head, err := git(t.Context(), dir, "-C", filepath.Join(dir, "hello.git"), "rev-parse", "main")
	if err != nil || entry != "commit "+head {
		t.Errorf("the submodule is %q, the other repository is at %q, %v", entry, head, err)
	}
}

func TestPublishedKeyIsPrivate(t *testing.T) {
	path := filepath.Join(t.TempDir(), "key.pem")
	if err := os.WriteFile(path+".part", []byte("old"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := publish(path, []byte("new"), 0o600); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the key's mode is %v, %v", info.Mode(), err)
	}
}

// TestAppID holds the compose file to the App that there is.
func TestAppID(t *testing.T) {
	text, err := os.ReadFile("../demo.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if want := `SALLYPORT_GITHUB_APP_ID: "` + github.AppIDText + `"`; !strings.Contains(string(text), want) {
		t.Errorf("demo.yaml lacks %s", want)
	}
}
