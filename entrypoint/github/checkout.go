package github

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// A CheckoutSpec says what a workspace is to hold before the agent starts.
type CheckoutSpec struct {
	// URL is the repository's, without a user: the credential comes from the helper.
	URL string `json:"url"`
	// Branch is checked out; where the remote has none of this name it is made, from
	// BaseBranch or, without one, the remote's default branch.
	Branch     string `json:"branch"`
	BaseBranch string `json:"baseBranch,omitempty"`
	// Shallow fetches the newest commit only. Otherwise, with a BaseBranch, history
	// reaches back to the merge base of the two, without one to the beginning.
	Shallow bool `json:"shallow,omitempty"`
}

// ExitNotEmpty is Checkout's exit status for a workspace that holds something:
// it is left alone.
const ExitNotEmpty = 3

// ErrNotEmpty says that the workspace holds something.
var ErrNotEmpty = errors.New("the workspace is not empty")

const (
	firstDepth = 50 // commits
	maxDepth   = 50 << 10
	// maxSpec bounds a CheckoutSpec, maxOutput what is kept of git's output, in bytes.
	maxSpec   = 64 << 10
	maxOutput = 8 << 10
	// waitDelay bounds the wait for what git has started, once it is killed.
	waitDelay = time.Second
)

// Checkout fills the working directory by git, as the JSON CheckoutSpec on stdin
// says, and prints the commit that is checked out. When it fails, or ctx ends, the
// directory is empty again.
func Checkout(ctx context.Context, stdin io.Reader, stdout io.Writer) error {
	var spec CheckoutSpec
	if err := json.NewDecoder(io.LimitReader(stdin, maxSpec)).Decode(&spec); err != nil {
		return fmt.Errorf("decode the checkout: %w", err)
	}
	dir, err := os.Getwd()
	if err != nil {
		return fmt.Errorf("find the workspace: %w", err)
	}
	commit, err := checkout(ctx, spec, dir)
	if err != nil {
		return err
	}
	_, err = io.WriteString(stdout, commit)
	return err
}

// checkout returns the commit, with a newline.
func checkout(ctx context.Context, spec CheckoutSpec, dir string) (commit string, err error) {
	held, err := os.ReadDir(dir)
	if err != nil {
		return "", fmt.Errorf("look into the workspace: %w", err)
	}
	if len(held) > 0 {
		return "", ErrNotEmpty
	}
	c := &clone{ctx: ctx, dir: dir, spec: spec}
	if err = c.fill(); err == nil {
		commit, err = c.git("rev-parse", "HEAD")
	}
	if err != nil {
		return "", errors.Join(fmt.Errorf("check out %s of %s: %w", spec.Branch, spec.URL, err), empty(dir))
	}
	return commit, nil
}

// empty removes what a checkout that failed has left.
func empty(dir string) error {
	left, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range left {
		err = errors.Join(err, os.RemoveAll(filepath.Join(dir, e.Name())))
	}
	return err
}

// A clone is a checkout under way.
type clone struct {
	ctx  context.Context
	dir  string
	spec CheckoutSpec
}

func (c *clone) fill() error {
	if _, err := c.git("init", "-q", "-b", c.spec.Branch); err != nil {
		return err
	}
	if _, err := c.git("remote", "add", "origin", c.spec.URL); err != nil {
		return err
	}
	there, err := c.onRemote(c.spec.Branch)
	if err != nil {
		return err
	}
	start := c.spec.Branch
	if !there {
		if start, err = c.base(); err != nil {
			return err
		}
	}
	if err := c.fetch(start); err != nil {
		return err
	}
	track := "--no-track"
	if there {
		track = "--track"
	}
	_, err = c.git("checkout", "-q", track, "-B", c.spec.Branch, "refs/remotes/origin/"+start)
	return err
}

// onRemote reports whether the remote has a branch.
func (c *clone) onRemote(branch string) (bool, error) {
	_, err := c.git("ls-remote", "--exit-code", "--heads", "origin", "refs/heads/"+branch)
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() == 2 { // git-ls-remote(1)
		return false, nil
	}
	return err == nil, err
}

// base is the branch that a new one starts from.
func (c *clone) base() (string, error) {
	if c.spec.BaseBranch != "" {
		return c.spec.BaseBranch, nil
	}
	out, err := c.git("ls-remote", "--symref", "origin", "HEAD")
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(out) {
		if ref, ok := strings.CutPrefix(line, "ref: refs/heads/"); ok {
			name, _, _ := strings.Cut(ref, "\t")
			return name, nil
		}
	}
	return "", errors.New("the remote has no default branch")
}

// fetch gets as much history of the branch to start from as the spec asks for.
func (c *clone) fetch(start string) error {
	base := c.spec.BaseBranch
	switch {
	case c.spec.Shallow:
		return c.fetchBranches("--depth=1", start)
	case base == "":
		return c.fetchBranches("", "*")
	case base == start:
		return c.fetchBranches("", start)
	}
	for depth := firstDepth; depth <= maxDepth; depth *= 4 {
		if err := c.fetchBranches("--depth="+strconv.Itoa(depth), start, base); err != nil {
			return err
		}
		if _, err := c.git("merge-base", "refs/remotes/origin/"+start, "refs/remotes/origin/"+base); err == nil {
			return nil
		}
		if _, err := os.Stat(filepath.Join(c.dir, ".git", "shallow")); err != nil {
			return nil // all of the history is there, and it has no merge base
		}
	}
	return c.fetchBranches("--unshallow", start, base)
}

func (c *clone) fetchBranches(depth string, branches ...string) error {
	args := []string{"fetch", "-q", "--no-tags"}
	if depth != "" {
		args = append(args, depth)
	}
	args = append(args, "origin")
	for _, b := range branches {
		args = append(args, "+refs/heads/"+b+":refs/remotes/origin/"+b)
	}
	_, err := c.git(args...)
	return err
}

// git runs git in the workspace. What it says on standard error is in the error,
// its end at least.
func (c *clone) git(args ...string) (string, error) {
	cmd := exec.CommandContext(c.ctx, "git", args...)
	cmd.Dir = c.dir
	// What git has started ends with it, so that nothing is written any more once Run
	// returns: it waits for the end of all who have the pipes.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = waitDelay
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		said := bytes.TrimSpace(stderr.Bytes())
		if len(said) > maxOutput {
			said = said[len(said)-maxOutput:]
		}
		return "", fmt.Errorf("git %s: %w: %s", args[0], err, said)
	}
	return stdout.String(), nil
}
