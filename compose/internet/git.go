package main

import (
	"context"
	"fmt"
	"net/http"
	"net/http/cgi"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// newGitSite serves one repository, /hello.git, by git's own smart HTTP backend.
// The repository is made in root.
func newGitSite(ctx context.Context, root string) (http.Handler, error) {
	work := filepath.Join(root, "work")
	if err := os.Mkdir(work, 0o755); err != nil {
		return nil, fmt.Errorf("git site: %w", err)
	}
	readme := []byte("# hello\n\nA repository of the demo's internet.\n")
	if err := os.WriteFile(filepath.Join(work, "README.md"), readme, 0o644); err != nil {
		return nil, fmt.Errorf("git site: %w", err)
	}
	for _, args := range [][]string{
		{"-C", work, "init", "-q", "-b", "main"},
		{"-C", work, "add", "README.md"},
		{"-C", work, "commit", "-q", "-m", "say hello"},
		{"clone", "-q", "--bare", work, filepath.Join(root, "hello.git")},
	} {
		if _, err := git(ctx, root, args...); err != nil {
			return nil, err
		}
	}
	programs, err := git(ctx, root, "--exec-path")
	if err != nil {
		return nil, err
	}
	return &cgi.Handler{
		Path: filepath.Join(programs, "git-http-backend"),
		Env:  append(gitEnv(root), "GIT_PROJECT_ROOT="+root, "GIT_HTTP_EXPORT_ALL=1"),
	}, nil
}

// gitEnv keeps git from reading anybody's configuration.
func gitEnv(home string) []string {
	return []string{
		"HOME=" + home, "GIT_CONFIG_NOSYSTEM=1",
		"GIT_AUTHOR_NAME=demo", "GIT_AUTHOR_EMAIL=demo@docs.example",
		"GIT_COMMITTER_NAME=demo", "GIT_COMMITTER_EMAIL=demo@docs.example",
	}
}

func git(ctx context.Context, home string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "git", args...)
	cmd.Env = append(gitEnv(home), "PATH="+os.Getenv("PATH"))
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("git %s: %w: %s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out)), nil
}
