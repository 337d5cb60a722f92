// Package files puts files into a sandbox for PID 1: at paths where an agent may have
// left anything, and so in one step each and without following symbolic links.
package files

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"
)

// Write puts a file in place of whatever has its name, in one step and
// without following a symbolic link, so that what an earlier job left there
// cannot lead the content elsewhere. Missing directories are made. The kernel's
// permissions decide what can be written. Errors name the file.
func Write(name string, mode uint32, content []byte) error {
	if err := placeFile(name, mode, content); err != nil {
		return fmt.Errorf("write the file %q: %w", name, err)
	}
	return nil
}

func placeFile(name string, mode uint32, content []byte) error {
	if mode == 0 {
		mode = 0o600
	}
	if mode&^0o777 != 0 {
		return fmt.Errorf("mode %#o has more than permission bits", mode)
	}
	if !path.IsAbs(name) || path.Clean(name) != name || name == "/" || strings.ContainsRune(name, 0) {
		return errors.New("its path is not absolute and clean")
	}
	dir, base := path.Split(name)
	fd, err := openDirs(dir)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	temporary := fmt.Sprintf(".sallyport-%016x", rand.Uint64())
	if err := createAt(fd, temporary, mode, content); err != nil {
		return err
	}
	if err := unix.Renameat(fd, temporary, fd, base); err != nil {
		unix.Unlinkat(fd, temporary, 0)
		return fmt.Errorf("put it in its place: %w", err)
	}
	return nil
}

// openDirs opens an absolute directory step by step and makes what is missing.
func openDirs(dir string) (int, error) {
	fd, err := unix.Open("/", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("open /: %w", err)
	}
	for step := range strings.SplitSeq(strings.Trim(dir, "/"), "/") {
		if step == "" {
			continue
		}
		next, err := openDirAt(fd, step)
		unix.Close(fd)
		if err != nil {
			return -1, err
		}
		fd = next
	}
	return fd, nil
}

func openDirAt(fd int, step string) (int, error) {
	const flags = unix.O_PATH | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC
	next, err := unix.Openat(fd, step, flags, 0)
	if errors.Is(err, unix.ENOENT) {
		if err := unix.Mkdirat(fd, step, 0o755); err != nil && !errors.Is(err, unix.EEXIST) {
			return -1, fmt.Errorf("make the directory %q: %w", step, err)
		}
		next, err = unix.Openat(fd, step, flags, 0)
	}
	if errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) {
		return -1, fmt.Errorf("%q on its way is a symbolic link or no directory", step)
	}
	if err != nil {
		return -1, fmt.Errorf("open the directory %q: %w", step, err)
	}
	return next, nil
}

func createAt(dir int, name string, mode uint32, content []byte) (err error) {
	fd, err := unix.Openat(dir, name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return fmt.Errorf("create it: %w", err)
	}
	f := os.NewFile(uintptr(fd), name)
	defer func() {
		err = errors.Join(err, f.Close())
		if err != nil {
			unix.Unlinkat(dir, name, 0)
		}
	}()
	if _, err := f.Write(content); err != nil {
		return fmt.Errorf("fill it: %w", err)
	}
	return f.Chmod(os.FileMode(mode)) // the umask must not matter
}
