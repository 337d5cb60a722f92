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

// minToken is the fewest characters that a token may have.
const minToken = 16

// LoadToken reads the bearer token from a file, which others must not be able to read
// or to have written. Where there is none it makes
// a token and a file that only its owner can read, who is that of the directory:
// the person whose executor it is, though it may run as root.
func LoadToken(path string) (string, error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return makeToken(path)
	}
	if err == nil {
		err = private(path)
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

// private wants that a file is its owner's alone, who is us, root or whose the
// directory is.
func private(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if mode := info.Mode().Perm(); mode&0o077 != 0 {
		return fmt.Errorf("%s has the mode %04o, so that others than its owner have access: chmod 0600 it, and change the token unless you trust them", path, mode)
	}
	owner := int(info.Sys().(*syscall.Stat_t).Uid)
	if keeper, _, _ := ownerOf(filepath.Dir(path)); owner != 0 && owner != os.Geteuid() && owner != keeper {
		return fmt.Errorf("%s belongs to the user %d, who is neither root nor whose the directory is: chown it", path, owner)
	}
	return nil
}

func makeToken(path string) (string, error) {
	token := rand.Text() + rand.Text()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return "", fmt.Errorf("make a token: %w", err)
	}
	// Written beside its place and linked into it: a reader finds all of it or
	// nothing, and of two makers one wins.
	tmp, err := os.CreateTemp(filepath.Dir(path), "token.*") // mode 0600
	if err != nil {
		return "", fmt.Errorf("make a token: %w", err)
	}
	defer os.Remove(tmp.Name())
	_, err = tmp.WriteString(token + "\n")
	if uid, gid, ok := ownerOf(filepath.Dir(path)); ok && os.Geteuid() == 0 {
		err = errors.Join(err, tmp.Chown(uid, gid))
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
