package caller

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"sallyport/internal/fileowner"
)

// LoadToken reads the operator's token from a file, which others must not be able to read
// or to have written. Where there is none it makes a token and a file that only its owner
// can read, who is that of the directory: the person whose executor it is, though it may
// run as root.
func LoadToken(path string) (string, error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return makeToken(path)
	}
	var info fs.FileInfo
	if err == nil {
		info, err = os.Stat(path)
	}
	if err == nil {
		err = fileowner.Trusted(path, info)
	}
	if err != nil {
		return "", fmt.Errorf("read the token: %w", err)
	}
	token := strings.TrimSpace(string(data))
	if len(token) < MinToken {
		return "", fmt.Errorf("the token in %s has fewer than %d characters; remove the file to have one made", path, MinToken)
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
	tmp, err := os.CreateTemp(filepath.Dir(path), "token.*") // mode 0600
	if err != nil {
		return "", fmt.Errorf("make a token: %w", err)
	}
	defer os.Remove(tmp.Name())
	_, err = tmp.WriteString(token + "\n")
	err = errors.Join(err, fileowner.GiveLike(filepath.Dir(path), tmp.Chown), tmp.Close())
	if err != nil {
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
