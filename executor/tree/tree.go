// Package tree looks at directory trees that somebody hostile may have made, and
// removes them. Both go by descriptors, one name at a time, from directory to
// directory: the shape of a tree, be it as deep or as wide as its file system
// allows, costs neither memory nor descriptors, and no more system calls than the
// tree has entries. No symbolic link is followed and no other file system entered.
//
//	d, err := tree.Open("/var/lib/sallyport/workspaces/01arz3")
//	size, err := d.Measure(ctx, tree.Size{Bytes: 1 << 30, Entries: 1000})
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
)

// A Size is how much a tree holds: bytes on disk, and entries of directories.
type Size struct{ Bytes, Entries int64 }

// Exceeds reports whether the size is over a limit in one respect or the other.
func (s Size) Exceeds(limit Size) bool { return s.Bytes > limit.Bytes || s.Entries > limit.Entries }

// Minus is the difference of two sizes.
func (s Size) Minus(t Size) Size { return Size{s.Bytes - t.Bytes, s.Entries - t.Entries} }

// Plus is the sum of two sizes.
func (s Size) Plus(t Size) Size { return Size{s.Bytes + t.Bytes, s.Entries + t.Entries} }

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

// Close closes the directory.
func (d *Dir) Close() error { return unix.Close(d.fd) }

// Device identifies the file system of the directory.
func (d *Dir) Device() (uint64, error) {
	var st unix.Stat_t
	if err := unix.Fstat(d.fd, &st); err != nil {
		return 0, fmt.Errorf("look at a directory: %w", err)
	}
	return uint64(st.Dev), nil
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
