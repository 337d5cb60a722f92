package tree

import (
	"fmt"
	"math"

	"golang.org/x/sys/unix"
)

// A Space is what a file system has left for those who are not root: bytes and
// inodes. Where it does not say, or makes inodes as they are needed, that is the
// greatest number.
type Space struct {
	Bytes, Inodes int64
	// AllInodes is how many inodes it has, free or not.
	AllInodes int64
}

// SpaceAt returns the space of the file system of a path.
func SpaceAt(path string) (Space, error) {
	d, err := Open(path)
	if err != nil {
		return Space{}, err
	}
	defer d.Close()
	return d.Space()
}

// Space returns the space of the directory's file system. What is written and not
// yet on disk is taken off already, as ext4, xfs and tmpfs count.
func (d *Dir) Space() (Space, error) {
	var st unix.Statfs_t
	if err := unix.Fstatfs(d.fd, &st); err != nil {
		return Space{}, fmt.Errorf("ask a file system for its space: %w", err)
	}
	unit := st.Frsize
	if unit == 0 {
		unit = st.Bsize
	}
	s := Space{Bytes: math.MaxInt64, Inodes: math.MaxInt64, AllInodes: math.MaxInt64}
	if st.Blocks > 0 {
		s.Bytes = int64(st.Bavail) * int64(unit)
	}
	if st.Files > 0 {
		s.Inodes, s.AllInodes = int64(st.Ffree), int64(st.Files)
	}
	return s, nil
}
