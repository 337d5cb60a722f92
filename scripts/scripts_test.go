// Package scripts_test has the tests of the scripts that need no stack.
package scripts_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestMain(m *testing.M) {
	// Docker Compose is asked what it would do.
	if out, err := bash(nil, "scripts/setup composer"); err != nil {
		fmt.Fprintf(os.Stderr, "scripts tests: set up Docker Compose: %v\n%s", err, out)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// bash runs a script at the repository's root, with further variables in its
// environment and without what a developer has set for a stack, and returns what it
// wrote.
func bash(env []string, script string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, "bash", "-euc", script)
	environ := slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "SALLYPORT_") || strings.HasPrefix(v, "COMPOSE_") })
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = "..", append(environ, env...), &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return stdout.String(), fmt.Errorf("%w: %s", err, stderr.String())
	}
	return stdout.String(), nil
}

// mustBash is bash for a script that shall succeed.
func mustBash(t *testing.T, env []string, script string) string {
	t.Helper()
	out, err := bash(env, script)
	if err != nil {
		t.Fatalf("%s: %v\n%s", script, err, out)
	}
	return out
}

// write makes a file and returns its path.
func write(t *testing.T, path, text string, mode os.FileMode) string {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil { // whatever the umask
		t.Fatal(err)
	}
	return path
}

// A base image that is pinned is taken as it is named, or none.
func TestPinnedBase(t *testing.T) {
	const id = "docker image inspect --format '{{.Id}}' sallyport/base:bookworm 2>/dev/null || true"
	before := mustBash(t, nil, id)
	nobody := "127.0.0.1:1/debian@sha256:" + strings.Repeat("0", 64) // where no registry listens
	for base, want := range map[string]string{
		nobody:                 "no registry gives the base image " + nobody,
		"debian:bookworm-slim": "by its digest",
		"debian@sha256:0":      "by its digest",
		"debian@sha256:" + strings.Repeat("0", 64) + " x": "by its digest",
	} {
		_, err := bash([]string{"SALLYPORT_BASE=" + base}, "scripts/setup base")
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", base, err, want)
		}
	}
	if after := mustBash(t, nil, id); after != before {
		t.Errorf("the base image was %q and is %q", before, after)
	}
	if before != "" {
		mustBash(t, []string{"SALLYPORT_BASE="}, "scripts/setup base")
	}
}
