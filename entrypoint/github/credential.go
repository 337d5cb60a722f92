package github

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strings"
)

// maxRequest bounds a request of git's, in bytes.
const maxRequest = 64 << 10

// A request is what git wants a credential for (git-credential(1)).
type request struct{ protocol, host, path string }

// parseRequest reads key=value lines up to an empty one or the end. Keys that
// do not matter here are left out, unknown ones as well: git adds some.
func parseRequest(r io.Reader) (request, error) {
	var req request
	lines := bufio.NewScanner(io.LimitReader(r, maxRequest))
	for lines.Scan() {
		line := lines.Text()
		if line == "" {
			break
		}
		key, value, ok := strings.Cut(line, "=")
		if !ok || strings.ContainsRune(line, 0) {
			return request{}, errors.New("a line of git's request is not key=value")
		}
		switch key {
		case "protocol":
			req.protocol = value
		case "host":
			req.host = value
		case "path":
			req.path = value
		}
	}
	if err := lines.Err(); err != nil {
		return request{}, fmt.Errorf("read git's request: %w", err)
	}
	return req, nil
}

// covers reports whether the token is for what git asks about: https, this very
// host without a port, and a repository of the list. GitHub's names fold case.
func (a Access) covers(req request) bool {
	if req.protocol != "https" || a.Host == "" || !strings.EqualFold(req.host, a.Host) {
		return false
	}
	owner, rest, ok := strings.Cut(strings.TrimPrefix(req.path, "/"), "/")
	if !ok || !strings.EqualFold(owner, a.Owner) {
		return false
	}
	name, service, _ := strings.Cut(rest, "/")
	if service != "" && service != "info/lfs" && !strings.HasPrefix(service, "info/lfs/") {
		return false
	}
	name = strings.TrimSuffix(name, ".git")
	for _, r := range a.Repositories {
		if strings.EqualFold(name, r) {
			return true
		}
	}
	return false
}

// Credential is git's credential helper: it answers "get" for what the access
// covers and says nothing about anything else. There is nothing to store or erase.
func Credential(args []string, stdin io.Reader, stdout io.Writer) error {
	return credential(args, stdin, stdout, accessPath, TokenPath)
}

func credential(args []string, stdin io.Reader, stdout io.Writer, access, token string) error {
	if len(args) != 1 {
		return errors.New("usage: " + CredentialShim + " get | store | erase")
	}
	if args[0] != "get" {
		return nil
	}
	req, err := parseRequest(stdin)
	if err != nil {
		return err
	}
	a, err := readAccess(access)
	if err != nil {
		return err
	}
	if !a.covers(req) {
		return nil
	}
	value, err := readToken(token)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(stdout, "username=%s\npassword=%s\n", user, value)
	return err
}
