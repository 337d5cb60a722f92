package secrets

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"sallyport/internal/fileowner"
)

// A Directory holds each secret in a file of its name, which must be its owner's alone:
// us, root, or whose the directory is. It is read at each use.
type Directory string

// Secret implements Provider.
func (d Directory) Secret(_ context.Context, name string) (string, bool, error) {
	path := filepath.Join(string(d), name)
	// Without O_NONBLOCK somebody's FIFO would hold a run up.
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return "", false, nil
	}
	if err != nil {
		return "", false, err
	}
	defer f.Close()
	info, err := f.Stat()
	switch {
	case err != nil:
		return "", false, err
	case !info.Mode().IsRegular():
		return "", false, fmt.Errorf("%s is no regular file", path)
	}
	if err := fileowner.Trusted(path, info); err != nil {
		return "", false, err
	}
	value, err := io.ReadAll(io.LimitReader(f, MaxLength+2)) // with its line end, or too long
	return string(value), err == nil, err
}

// Names are the files of the directory, but for hidden ones.
func (d Directory) Names() ([]string, error) {
	info, err := os.Stat(string(d))
	if err != nil {
		return nil, err
	}
	if info.Mode().Perm()&0o022 != 0 {
		return nil, fmt.Errorf("others than the owner of %s may write there: chmod go-w it", d)
	}
	entries, err := os.ReadDir(string(d))
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		switch name := e.Name(); {
		case strings.HasPrefix(name, "."):
		case !nameForm.MatchString(name):
			err = errors.Join(err, fmt.Errorf("%q in %s cannot be the name of a secret: it must be of letters, digits, - and _", name, d))
		default:
			names = append(names, name)
		}
	}
	return names, err
}
