package plan

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"sallyport/executor/api"
	"sallyport/executor/tree"
)

// ResolveRoots checks the directories under which requests may name paths and
// returns them without symbolic links.
func ResolveRoots(roots []string) ([]string, error) {
	var resolved []string
	for _, r := range roots {
		if !filepath.IsAbs(r) {
			return nil, fmt.Errorf("root %q is not an absolute path", r)
		}
		dir, err := filepath.EvalSymlinks(r)
		if err != nil {
			return nil, fmt.Errorf("root %s: %w", r, err)
		}
		info, err := os.Stat(dir)
		if err != nil {
			return nil, fmt.Errorf("root %s: %w", r, err)
		}
		if !info.IsDir() {
			return nil, fmt.Errorf("root %s is not a directory", r)
		}
		resolved = append(resolved, dir)
	}
	return resolved, nil
}

// resolve returns a path that exists under one of the roots, without symbolic links.
func (s *Service) resolve(field, path string) (string, *api.Problem) {
	if problem := wellFormed(field, path); problem != nil {
		return "", problem
	}
	dir, err := filepath.EvalSymlinks(path)
	switch {
	case err != nil && s.underRoot(path):
		return "", unacceptable(field, "%s: %.256q does not exist or cannot be opened", field, path)
	case err != nil || !s.underRoot(dir):
		// One answer for all that lies outside: whether it exists is none of
		// the caller's business.
		return "", s.outside(field, path)
	}
	return dir, nil
}

// direct returns a path under one of the roots, below which no step of it may be a
// symbolic link; open finds out. Whoever wrote there, an agent among them, could have a
// link lead to what is somebody else's under the same root.
func (s *Service) direct(field, path string) (string, *api.Problem) {
	if problem := wellFormed(field, path); problem != nil {
		return "", problem
	}
	steps := strings.Split(path, "/")
	for i := 1; i <= len(steps); i++ {
		at, err := filepath.EvalSymlinks("/" + filepath.Join(steps[:i]...))
		if err != nil {
			break
		}
		if s.underRoot(at) {
			return filepath.Join(at, filepath.Join(steps[i:]...)), nil
		}
	}
	return "", s.outside(field, path)
}

// open opens a directory that resolve or direct has found. It may be another one by now,
// for whoever writes there, but not one outside of the root or by way of a link.
func (s *Service) open(field, path, dir string) (*tree.Dir, *api.Problem) {
	root := s.RootOf(dir)
	below, err := filepath.Rel(root, dir)
	var opened *tree.Dir
	if err == nil {
		opened, err = tree.OpenBelow(root, below)
	}
	switch {
	case err == nil:
		return opened, nil
	case errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP):
		return nil, unacceptable(field, "%s: %.256q is not a directory, or a symbolic link leads to it", field, path)
	}
	return nil, unacceptable(field, "%s: %.256q does not exist or cannot be opened", field, path)
}

func wellFormed(field, path string) *api.Problem {
	if !filepath.IsAbs(path) || filepath.Clean(path) != path || strings.ContainsRune(path, 0) {
		return unacceptable(field, "%s is %.256q; it must be an absolute path in its shortest form", field, path)
	}
	return nil
}

func (s *Service) underRoot(path string) bool { return s.RootOf(path) != "" }

// RootOf returns the root that a resolved path is or lies under, "" for none.
func (s *Service) RootOf(path string) string {
	for _, r := range s.Roots {
		if tree.Within(path, r) {
			return r
		}
	}
	return ""
}

// private refuses a directory that holds or lies in one of the executor's own, but
// for those that may be.
func (s *Service) private(field, path, dir string, but ...string) *api.Problem {
	for _, p := range s.Private {
		if tree.Overlap(dir, p) && !slices.Contains(but, p) {
			return unacceptable(field, "%s: %.256q holds or lies in something of the executor's own", field, path)
		}
	}
	return nil
}

func (s *Service) outside(field, path string) *api.Problem {
	if len(s.Roots) == 0 {
		return unacceptable(field, "%s: the operator has configured no roots, so no path can be named", field)
	}
	p := unacceptable(field, "%s: %.256q does not lie under a configured root (%s)", field, path, strings.Join(s.Roots, ", "))
	p.Details["roots"] = s.Roots
	return p
}

// judgeWorkspace resolves cwd and says as whom the sandbox must run to use it.
func (s *Service) judgeWorkspace(p *Plan) *api.Problem {
	const field = "config.cwd"
	p.UID, p.GID = s.UID, s.UID
	cwd := p.Request.Config.CWD
	if cwd == "" {
		return nil
	}
	dir, problem := s.resolve(field, cwd)
	if problem == nil {
		problem = s.private(field, cwd, dir)
	}
	if problem != nil {
		return problem
	}
	opened, problem := s.open(field, cwd, dir)
	if problem != nil {
		return problem
	}
	defer opened.Close()
	owner, err := opened.Stat()
	if err != nil {
		return unacceptable(field, "%s: %.256q: %v", field, cwd, err)
	}
	if owner.Uid != 0 {
		p.UID, p.GID = int(owner.Uid), int(owner.Gid)
		if p.GID == 0 { // no group of the host's root for a sandbox
			p.GID = s.UID
		}
	} else if !writable(owner, s.UID) {
		return unacceptable(field, "%s: %.256q belongs to root and is not writable for the agent; mend it with: chown -R %d:%d %s", field, cwd, s.UID, s.UID, dir)
	}
	p.Dir = dir
	return nil
}

// writable reports whether a directory of root's can be written by the agent.
func writable(dir unix.Stat_t, uid int) bool {
	return dir.Mode&0o003 == 0o003 || dir.Mode&0o030 == 0o030 && int(dir.Gid) == uid
}

// judgeSessions finds where the session log goes. It must be out of the agent's
// reach, as the executor writes there.
func (s *Service) judgeSessions(p *Plan) *api.Problem {
	const field = "config.sessionsDir"
	p.SessionsDir = s.Sessions
	dir := p.Request.Config.SessionsDir
	if dir == "" {
		return nil
	}
	resolved, problem := s.resolve(field, dir)
	if problem != nil {
		return problem
	}
	if p.Dir != "" && tree.Overlap(resolved, p.Dir) {
		return unacceptable(field, "%s: %.256q holds or lies in the workspace, where the agent can write", field, dir)
	}
	if problem := s.private(field, dir, resolved, s.Sessions); problem != nil {
		return problem
	}
	opened, problem := s.open(field, dir, resolved)
	if problem != nil {
		return problem
	}
	p.SessionsDir = resolved
	opened.Close()
	return nil
}
