package tree

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// setID are the bits by which a program runs as its file's owner or group.
const setID = unix.S_ISUID | unix.S_ISGID

// Doors measures all that the directory holds, as Measure does, and returns the names,
// relative to it, of at most so many entries by which somebody inside could talk to
// somebody outside: FIFOs, and sockets at which somebody listens. That is found out by a
// connection; a socket that nobody listens at leads nowhere.
func (d *Dir) Doors(ctx context.Context, most int) (Size, []string, error) {
	var found []string
	size, err := d.walk(ctx, &measurement{limit: Size{math.MaxInt64, math.MaxInt64}, see: func(dir int, name string, st *unix.Stat_t) {
		kind := st.Mode & unix.S_IFMT
		if len(found) < most && (kind == unix.S_IFIFO || kind == unix.S_IFSOCK && listening(dir, name)) {
			found = append(found, d.name(dir, name))
		}
	}})
	return size, found, err
}

// StripSetID takes the set-user-ID and set-group-ID bits from the regular files that the
// user owns, however deep they lie, and returns how many it was and the names of at most
// so many, relative to the directory. It goes on behind a file that keeps them and returns
// the first error.
func (d *Dir) StripSetID(ctx context.Context, uid, most int) (stripped int, names []string, err error) {
	var failed error
	_, err = d.walk(ctx, &measurement{limit: Size{math.MaxInt64, math.MaxInt64}, deep: true, see: func(dir int, name string, st *unix.Stat_t) {
		if !marked(st, uid) {
			return
		}
		done, err := strip(dir, name, uid)
		if err != nil && failed == nil {
			failed = fmt.Errorf("take the set-id bits from %.256q: %w", d.name(dir, name), err)
		}
		if !done {
			return
		}
		if stripped++; len(names) < most {
			names = append(names, d.name(dir, name))
		}
	}})
	return stripped, names, errors.Join(failed, err)
}

func marked(st *unix.Stat_t, uid int) bool {
	return st.Mode&unix.S_IFMT == unix.S_IFREG && st.Mode&setID != 0 && int(st.Uid) == uid
}

// strip goes by a descriptor, so that nobody can have another file in the place of the
// one that it looked at.
func strip(dir int, name string, uid int) (done bool, err error) {
	fd, err := unix.Openat(dir, name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return false, ignore(err, unix.ENOENT)
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || !marked(&st, uid) {
		return false, err
	}
	err = unix.Fchmod(fd, st.Mode&0o7777&^setID)
	return err == nil, err
}

// listening reports whether somebody listens at a socket, or that cannot be found out.
func listening(dir int, name string) bool {
	fd, err := unix.Openat(dir, name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return err != unix.ENOENT
	}
	defer unix.Close(fd)
	s, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return true
	}
	defer unix.Close(s)
	return unix.Connect(s, &unix.SockaddrUnix{Name: ofDescriptor(fd)}) != unix.ECONNREFUSED
}

func ofDescriptor(fd int) string { return "/proc/self/fd/" + strconv.Itoa(fd) }

// name is that of an entry of an open directory, relative to d where that can be told.
func (d *Dir) name(dir int, entry string) string {
	var top, at [unix.PathMax]byte
	n, err := unix.Readlink(ofDescriptor(d.fd), top[:])
	m, err2 := unix.Readlink(ofDescriptor(dir), at[:])
	if err != nil || err2 != nil {
		return entry
	}
	below, ok := strings.CutPrefix(string(at[:m])+"/", strings.TrimSuffix(string(top[:n]), "/")+"/")
	if !ok {
		return entry
	}
	return below + entry
}
