package github

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"sallyport/entrypoint/wire"
)

// beganWith is the variable that holds the token that the run began with.
const beganWith = "GIT_TOKEN"

// The variables that gh takes a token from (gh help environment): for github.com
// and what is under ghe.com, and for every other host.
var (
	publicVariables     = []string{"GH_TOKEN", "GITHUB_TOKEN"}
	enterpriseVariables = []string{"GH_ENTERPRISE_TOKEN", "GITHUB_ENTERPRISE_TOKEN"}
)

// Gh becomes the gh that comes next in PATH, with the token that is valid now
// in place of the one that the run began with. args are those of the command
// line, the name first.
func Gh(args, environ []string) error {
	program, environ, err := behind(environ, accessPath, TokenPath)
	if err != nil {
		return err
	}
	if err := unix.Exec(program, args, environ); err != nil {
		return fmt.Errorf("start %s: %w", program, err)
	}
	return nil
}

// behind is the gh behind the front, and its environment.
func behind(environ []string, accessFile, tokenFile string) (program string, env []string, err error) {
	if program, err = nextGh(environ); err != nil {
		return "", nil, err
	}
	access, err := readAccess(accessFile)
	if err != nil {
		return "", nil, fmt.Errorf("gh: %w", err)
	}
	token, err := readToken(tokenFile)
	if err != nil {
		return "", nil, fmt.Errorf("gh: %w", err)
	}
	return program, withToken(environ, token, access.enterprise()), nil
}

// nextGh finds gh in PATH beyond the shims.
func nextGh(environ []string) (string, error) {
	var dirs string
	for _, e := range environ {
		if v, ok := strings.CutPrefix(e, "PATH="); ok {
			dirs = v
		}
	}
	for _, dir := range filepath.SplitList(dirs) {
		if !filepath.IsAbs(dir) || filepath.Clean(dir) == wire.ShimDir {
			continue
		}
		candidate := filepath.Join(dir, GhShim)
		info, err := os.Stat(candidate)
		if err == nil && info.Mode().IsRegular() && unix.Access(candidate, unix.X_OK) == nil {
			return candidate, nil
		}
	}
	return "", fmt.Errorf("gh is not in this sandbox's image: looked in PATH %q", dirs)
}

// withToken puts a token in place of the one that the run began with. A variable
// with another value was set by somebody who meant it. The token of an Enterprise
// Server is left out where gh would show it to github.com.
func withToken(environ []string, token string, enterprise bool) []string {
	var began string
	for _, e := range environ {
		if v, ok := strings.CutPrefix(e, beganWith+"="); ok {
			began = v
		}
	}
	replaced := make([]string, 0, len(environ))
	for _, e := range environ {
		name, value, _ := strings.Cut(e, "=")
		public := slices.Contains(publicVariables, name)
		ours := began != "" && value == began
		if enterprise && public && (ours || value == token) {
			continue
		}
		if ours && (public || name == beganWith || slices.Contains(enterpriseVariables, name)) {
			e = name + "=" + token
		}
		replaced = append(replaced, e)
	}
	return replaced
}
