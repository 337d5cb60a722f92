package store

import (
	"errors"
	"iter"
	"os"
	"path/filepath"
	"testing"

	"sallyport/executor/api"
)

func count(events iter.Seq[api.Event]) (n int) {
	for range events {
		n++
	}
	return n
}

// TestRemains opens the record of a run whose executor died with what it had of GitHub
// written down; the result has it, and the file goes.
func TestRemains(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	e := create(t, s, "a")
	appendText(t, e, "one")
	if err := e.KeepGithub(api.GithubReceipt{Owner: "acme", Refreshed: 1}); err != nil {
		t.Fatal(err)
	}
	if err := e.KeepGithub(api.GithubReceipt{Owner: "acme", Refreshed: 2}); err != nil {
		t.Fatal(err)
	}
	if _, err := e.file.WriteString("no event\n"); err != nil {
		t.Fatal(err)
	}
	appendText(t, e, "two")
	damaged := create(t, s, "b")
	if err := os.WriteFile(filepath.Join(dir, "b", githubFile), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	appendText(t, damaged, "one")
	s.Close()

	s = open(t, dir)
	e = find(t, s, "a")
	res, err := e.Result()
	if err != nil || res.Turns != 2 || res.Github == nil || res.Github.Refreshed != 2 {
		t.Errorf("%+v, %v", res, err)
	}
	if _, err := os.Stat(filepath.Join(dir, "a", githubFile)); err == nil {
		t.Error("the file is still there")
	}
	if err := e.KeepGithub(api.GithubReceipt{}); !errors.Is(err, ErrFinished) {
		t.Errorf("once it has ended: %v", err)
	}
	damaged = find(t, s, "b")
	if res, err := damaged.Result(); err != nil || res.Turns != 1 || res.Github != nil {
		t.Errorf("%+v, %v", res, err)
	}
}
