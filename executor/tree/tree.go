// Package tree looks at directory trees that somebody hostile may have made, and
// removes them. Both go by descriptors, one name at a time, from directory to
// directory: the shape of a tree, be it as deep or as wide as its file system
// allows, costs neither memory nor descriptors, and no more system calls than the
// tree has entries. No symbolic link is followed and no other file system entered.
//
//	d, err := tree.Open("/var/lib/sallyport/workspaces/01arz3")
//	size, err := d.Measure(ctx, tree.Size{Bytes: 1 << 30, Entries: 1000})
//	size, names, err := d.Doors(ctx, 10)
//	stripped, names, err := d.StripSetID(ctx, 10001, 10)
//	space, err := d.Space()
//	err = tree.Remove(ctx, "/var/lib/sallyport/workspaces/01arz3")
//
// os.RemoveAll and fs.WalkDir, which this is in place of, hold a descriptor and a
// buffer for each level (golang/go#47390); walking an os.Root opens each directory
// from the root anew.
package tree

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// MaxDepth is how many directories below one another Measure follows. The path of
// anything deeper is of no use to most programs (PATH_MAX).
const MaxDepth = 1000

var (
	// ErrDeep says that a tree is deeper than MaxDepth.
	ErrDeep = fmt.Errorf("directories are nested more than %d deep", MaxDepth)
	// ErrMoved says that a directory was moved while it was looked at, so that the
	// way back from it was lost.
	ErrMoved = errors.New("a directory was moved meanwhile")
	// ErrIrregular says that something is no regular file.
	ErrIrregular = errors.New("it is not a regular file")
)

// A Size is how much a tree holds: bytes on disk, and entries of directories.
type Size struct{ Bytes, Entries int64 }

// Exceeds reports whether the size is over a limit in one respect or the other.
func (s Size) Exceeds(limit Size) bool { return s.Bytes > limit.Bytes || s.Entries > limit.Entries }

// Minus is the difference of two sizes.
func (s Size) Minus(t Size) Size { return Size{s.Bytes - t.Bytes, s.Entries - t.Entries} }

// Plus is the sum of two sizes.
func (s Size) Plus(t Size) Size { return Size{s.Bytes + t.Bytes, s.Entries + t.Entries} }

// Within reports whether a clean absolute path is that of dir or lies below it.
func Within(path, dir string) bool {
	return path == dir || strings.HasPrefix(path, strings.TrimSuffix(dir, "/")+"/")
}

// Overlap reports whether one of two clean absolute paths lies Within the other.
func Overlap(a, b string) bool { return Within(a, b) || Within(b, a) }

// A Dir is a directory, whatever becomes of its name. Its methods may be called at
// the same time.
type Dir struct{ fd int }

// Open opens a directory, which no symbolic link may stand for.
func Open(path string) (*Dir, error) {
	fd, err := openDir(unix.AT_FDCWD, path)
	if err != nil {
		return nil, fmt.Errorf("open the directory %.256q: %w", path, err)
	}
	return &Dir{fd}, nil
}

// OpenBelow opens the directory rel below the directory root. root is the caller's own;
// in rel, which is in its shortest form, no symbolic link is followed, whoever puts one
// there meanwhile.
func OpenBelow(root, rel string) (*Dir, error) {
	fd, err := openDir(unix.AT_FDCWD, root)
	for step := range strings.SplitSeq(rel, "/") {
		if err != nil {
			return nil, fmt.Errorf("open the directory %.256q below %.256q: %w", rel, root, err)
		}
		above := fd
		fd, err = openDir(above, step)
		unix.Close(above)
	}
	if err != nil {
		return nil, fmt.Errorf("open the directory %.256q below %.256q: %w", rel, root, err)
	}
	return &Dir{fd}, nil
}

// Stat tells of the directory itself.
func (d *Dir) Stat() (unix.Stat_t, error) {
	var st unix.Stat_t
	if err := unix.Fstat(d.fd, &st); err != nil {
		return st, fmt.Errorf("look at a directory: %w", err)
	}
	return st, nil
}

// Names returns the names of at most so many of the directory's entries, of one more
// where there are more.
func (d *Dir) Names(most int) ([]string, error) {
	fd, err := openDir(d.fd, ".")
	if err != nil {
		return nil, fmt.Errorf("list a directory: %w", err)
	}
	f := os.NewFile(uintptr(fd), ".")
	defer f.Close()
	names, err := f.Readdirnames(most + 1)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("list a directory: %w", err)
	}
	return names, nil
}

// OpenFile opens a regular file in the directory for reading; of anything else, a
// symbolic link among it, the error is ErrIrregular.
func (d *Dir) OpenFile(name string) (*os.File, error) {
	var st unix.Stat_t
	err := unix.Fstatat(d.fd, name, &st, unix.AT_SYMLINK_NOFOLLOW)
	if err == nil && st.Mode&unix.S_IFMT != unix.S_IFREG {
		return nil, ErrIrregular
	}
	fd := -1
	if err == nil { // it may be another one by now, so that neither a link nor a pipe must be in the way
		fd, err = unix.Openat(d.fd, name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	}
	if err == unix.ELOOP {
		return nil, ErrIrregular
	}
	if err != nil {
		return nil, fmt.Errorf("open %.64q: %w", name, err)
	}
	f := os.NewFile(uintptr(fd), name)
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, errors.Join(ErrIrregular, err, f.Close())
	}
	return f, nil
}

// OpenDir opens a directory in the directory, which no symbolic link may stand for.
func (d *Dir) OpenDir(name string) (*Dir, error) {
	fd, err := openDir(d.fd, name)
	if err != nil {
		return nil, fmt.Errorf("open the directory %.64q: %w", name, err)
	}
	return &Dir{fd}, nil
}

// Close closes the directory.
func (d *Dir) Close() error { return unix.Close(d.fd) }

// Device identifies the file system of the directory.
func (d *Dir) Device() (uint64, error) {
	st, err := d.Stat()
	return uint64(st.Dev), err
}

// openDir opens a directory in another one.
func openDir(dir int, name string) (int, error) {
	for {
		fd, err := unix.Openat(dir, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
		if err != unix.EINTR {
			return fd, err
		}
	}
}
