package executor

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// tokenFile is the name of the token's file in the state directory.
const tokenFile = "token"

// minToken is the fewest characters that a token may have.
const minToken = 16

// LoadToken reads the bearer token from a file. Where there is none it makes
// a token and a file that only its owner can read, who is that of the directory:
// the person whose executor it is, though it may run as root.
func LoadToken(path string) (string, error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return makeToken(path)
	}
	if err != nil {
		return "", fmt.Errorf("read the token: %w", err)
	}
	token := strings.TrimSpace(string(data))
	if len(token) < minToken {
		return "", fmt.Errorf("the token in %s has fewer than %d characters; remove the file to have one made", path, minToken)
	}
	return token, nil
}

func makeToken(path string) (string, error) {
	token := rand.Text() + rand.Text()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return "", fmt.Errorf("make a token: %w", err)
	}
	// Written beside its place and linked into it: a reader finds all of it or
	// nothing, and of two makers one wins.
	tmp, err := os.CreateTemp(filepath.Dir(path), tokenFile+".*") // mode 0600
	if err != nil {
		return "", fmt.Errorf("make a token: %w", err)
	}
	defer os.Remove(tmp.Name())
	_, err = tmp.WriteString(token + "\n")
	if info, serr := os.Stat(filepath.Dir(path)); serr == nil && os.Geteuid() == 0 {
		owner := info.Sys().(*syscall.Stat_t)
		err = errors.Join(err, tmp.Chown(int(owner.Uid), int(owner.Gid)))
	}
	if err = errors.Join(err, tmp.Close()); err != nil {
		return "", fmt.Errorf("make a token: %w", err)
	}
	err = os.Link(tmp.Name(), path)
	if errors.Is(err, fs.ErrExist) {
		return LoadToken(path)
	}
	if err != nil {
		return "", fmt.Errorf("make a token: %w", err)
	}
	return token, nil
}

// sameToken compares in a time that says nothing about the token.
func sameToken(got, want string) bool {
	a, b := sha256.Sum256([]byte(got)), sha256.Sum256([]byte(want))
	return subtle.ConstantTimeCompare(a[:], b[:]) == 1
}
