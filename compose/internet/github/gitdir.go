package github

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// A gitDir is the path of a bare repository.
type gitDir string

// A signature is who makes a commit.
type signature struct{ name, email string }

func signatureOf(a *account) signature {
	return signature{a.login, fmt.Sprintf("%d+%s@users.noreply.%s", a.id, a.login, Host)}
}

// env keeps git from reading anybody's configuration.
func (g gitDir) env(more ...string) []string {
	return append([]string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + string(g), "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null", "LC_ALL=C",
	}, more...)
}

func (g gitDir) command(ctx context.Context, env []string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "git", args...)
	cmd.Dir, cmd.Env = string(g), env
	return cmd
}

// run returns what git prints, without the last newline.
func (g gitDir) run(ctx context.Context, stdin string, env []string, args ...string) (string, error) {
	cmd := g.command(ctx, g.env(env...), args...)
	cmd.Stdin = strings.NewReader(stdin)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("git %s: %w: %s", args[0], err, bytes.TrimSpace(stderr.Bytes()))
	}
	return strings.TrimSuffix(string(out), "\n"), nil
}

// resolve finds the object that a revision names, peeled to a type; "" without one.
func (g gitDir) resolve(ctx context.Context, revision, kind string) string {
	sha, err := g.run(ctx, "", nil, "rev-parse", "--verify", "--quiet", "--end-of-options", revision+"^{"+kind+"}")
	if err != nil {
		return ""
	}
	return sha
}

// branch is the commit of a branch, or "".
func (g gitDir) branch(ctx context.Context, name string) string {
	return g.resolve(ctx, "refs/heads/"+name, "commit")
}

// branches are the names of all branches, sorted.
func (g gitDir) branches(ctx context.Context) ([]string, error) {
	out, err := g.run(ctx, "", nil, "for-each-ref", "--format=%(refname:lstrip=2)", "refs/heads")
	return strings.Fields(out), err
}

// setRef moves a reference from one object to another; "" means that it is
// not there. It fails if it is elsewhere by now.
func (g gitDir) setRef(ctx context.Context, ref, to, from string) error {
	const zero = "0000000000000000000000000000000000000000"
	if from == "" {
		from = zero
	}
	if to == "" {
		_, err := g.run(ctx, "", nil, "update-ref", "-d", ref, from)
		return err
	}
	_, err := g.run(ctx, "", nil, "update-ref", ref, to, from)
	return err
}

// A treeEntry is one line of git ls-tree -l.
type treeEntry struct{ mode, kind, sha, size, path string }

// list returns the entries of a directory ("" is the root), or the one of a file.
func (g gitDir) list(ctx context.Context, commit, path string) ([]treeEntry, error) {
	args := []string{"ls-tree", "-l", "-z", commit}
	if path != "" {
		args = append(args, "--", path)
	}
	out, err := g.run(ctx, "", []string{"GIT_LITERAL_PATHSPECS=1"}, args...)
	if err != nil {
		return nil, err
	}
	var entries []treeEntry
	for line := range strings.SplitSeq(strings.TrimSuffix(out, "\x00"), "\x00") {
		meta, name, ok := strings.Cut(line, "\t")
		if f := strings.Fields(meta); ok && len(f) == 4 {
			entries = append(entries, treeEntry{f[0], f[1], f[2], f[3], name})
		}
	}
	return entries, nil
}

// blob is the content of a blob.
func (g gitDir) blob(ctx context.Context, sha string) ([]byte, error) {
	return g.command(ctx, g.env(), "cat-file", "blob", sha).Output()
}

// A change is one file of a commit; a nil content removes it.
type change struct {
	path    string
	content []byte
}

// commit makes a commit of the changes upon a parent, and returns it.
func (g gitDir) commit(ctx context.Context, parent string, by signature, message string, changes []change) (string, error) {
	tree, err := g.tree(ctx, parent, changes)
	if err != nil {
		return "", err
	}
	return g.commitTree(ctx, tree, by, message, parent)
}

// tree lays the changes over the tree of a commit, or over a tree.
func (g gitDir) tree(ctx context.Context, base string, changes []change) (string, error) {
	dir, err := os.MkdirTemp(string(g), "index-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	index := []string{"GIT_INDEX_FILE=" + filepath.Join(dir, "index")}
	if _, err := g.run(ctx, "", index, "read-tree", base); err != nil {
		return "", err
	}
	for _, c := range changes {
		if strings.Contains(c.path, "\x00") { // would be another line of the input
			return "", unprocessable("path contains a null byte")
		}
		info := "0 0000000000000000000000000000000000000000\t" + c.path + "\x00"
		if c.content != nil {
			sha, err := g.run(ctx, string(c.content), nil, "hash-object", "-w", "--stdin")
			if err != nil {
				return "", err
			}
			info = "100644 " + sha + "\t" + c.path + "\x00"
		}
		if _, err := g.run(ctx, info, index, "update-index", "-z", "--index-info"); err != nil {
			return "", err
		}
	}
	return g.run(ctx, "", index, "write-tree")
}

func (g gitDir) commitTree(ctx context.Context, tree string, by signature, message string, parents ...string) (string, error) {
	args := []string{"commit-tree", tree, "-F", "-"}
	for _, p := range parents {
		args = append(args, "-p", p)
	}
	return g.run(ctx, message, []string{
		"GIT_AUTHOR_NAME=" + by.name, "GIT_AUTHOR_EMAIL=" + by.email,
		"GIT_COMMITTER_NAME=" + by.name, "GIT_COMMITTER_EMAIL=" + by.email,
	}, args...)
}

// mergedTree is the tree of both commits together; false where they conflict.
func (g gitDir) mergedTree(ctx context.Context, base, head string) (string, bool) {
	out, err := g.run(ctx, "", nil, "merge-tree", "--write-tree", base, head)
	if err != nil {
		return "", false
	}
	tree, _, _ := strings.Cut(out, "\n")
	return tree, true
}

// A commitInfo is what git log tells of a commit.
type commitInfo struct {
	sha, tree              string
	parents                []string
	author, committer      signature
	authored, committed    string // RFC 3339
	subject, body, message string
}

// commits lists commits by git log's arguments, such as "-1", sha.
func (g gitDir) commits(ctx context.Context, args ...string) ([]commitInfo, error) {
	const format = "--format=%H%x00%T%x00%P%x00%an%x00%ae%x00%aI%x00%cn%x00%ce%x00%cI%x00%s%x00%b%x00%B%x00"
	out, err := g.run(ctx, "", nil, append([]string{"log", format}, args...)...)
	if err != nil {
		return nil, err
	}
	var list []commitInfo
	for f := range slices.Chunk(strings.Split(out, "\x00"), 12) {
		if len(f) < 12 {
			break // what follows the last NUL
		}
		list = append(list, commitInfo{
			sha: strings.TrimPrefix(f[0], "\n"), tree: f[1], parents: strings.Fields(f[2]),
			author: signature{f[3], f[4]}, authored: f[5], committer: signature{f[6], f[7]}, committed: f[8],
			subject: f[9], body: strings.TrimSpace(f[10]), message: strings.TrimSpace(f[11]),
		})
	}
	return list, nil
}

// A fileChange is what differs in one file.
type fileChange struct {
	status    string // added, modified or removed
	path      string
	add, drop int
}

// diff lists what head has changed since it left base.
func (g gitDir) diff(ctx context.Context, base, head string) ([]fileChange, error) {
	numbers, err := g.run(ctx, "", nil, "diff", "--no-renames", "--numstat", "-z", base+"..."+head)
	if err != nil {
		return nil, err
	}
	statuses, err := g.run(ctx, "", nil, "diff", "--no-renames", "--name-status", "-z", base+"..."+head)
	if err != nil {
		return nil, err
	}
	words := strings.Split(statuses, "\x00")
	status := map[string]string{}
	for i := 0; i+1 < len(words); i += 2 {
		status[words[i+1]] = map[string]string{"A": "added", "D": "removed"}[words[i]]
	}
	var files []fileChange
	for line := range strings.SplitSeq(strings.TrimSuffix(numbers, "\x00"), "\x00") {
		f := strings.SplitN(line, "\t", 3)
		if len(f) != 3 {
			continue
		}
		c := fileChange{path: f[2], status: status[f[2]]}
		if c.status == "" {
			c.status = "modified"
		}
		_, _ = fmt.Sscan(f[0], &c.add) // "-" for binary files: no lines
		_, _ = fmt.Sscan(f[1], &c.drop)
		files = append(files, c)
	}
	return files, nil
}
