package tree

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

const (
	// window is how many directories are open at once, the deepest ones. The way
	// back to those above is their child's "..".
	window = 16
	// chunk is how many bytes of a directory are read at a time.
	chunk = 8 << 10
)

// levels are the directories from the top of a tree down to where a walk is.
type levels struct {
	dev  uint64
	shut []shutLevel // above the open ones, the top first
	open []level     // at most window
	free [][]byte    // buffers of chunk bytes
}

// A level is an open directory that is being read.
type level struct {
	fd     int
	ino    uint64
	at     int64  // where the entry that next returns begins
	buf    []byte // of chunk bytes
	unread []byte // the part of buf that next has not passed
	back   bool   // the walk has just come back from what next returns
}

// A shutLevel is what it takes to find a directory again and to read on.
type shutLevel struct {
	ino uint64
	at  int64
}

// A dirent is one name in a directory.
type dirent struct {
	name  string
	isDir bool // certainly; else it may be one all the same
	end   int64
	size  int // in the buffer
}

var errOtherDevice = errors.New("another file system is mounted here")

func (l *levels) depth() int { return len(l.shut) + len(l.open) }

func (l *levels) top() *level { return &l.open[len(l.open)-1] }

// enter goes into a directory that was opened, which it closes if it cannot.
func (l *levels) enter(fd int) error {
	var st unix.Stat_t
	err := unix.Fstat(fd, &st)
	if err == nil && l.depth() == 0 {
		l.dev = uint64(st.Dev)
	}
	if err == nil && uint64(st.Dev) != l.dev {
		err = errOtherDevice
	}
	if err != nil {
		unix.Close(fd)
		return err
	}
	if len(l.open) == window {
		first := l.open[0]
		l.shut = append(l.shut, shutLevel{first.ino, first.at})
		l.drop(first)
		l.open = append(l.open[:0], l.open[1:]...)
	}
	l.open = append(l.open, level{fd: fd, ino: st.Ino, buf: l.buffer()})
	return nil
}

// leave goes back to the directory above, if there is one.
func (l *levels) leave() error {
	child := *l.top()
	l.open = l.open[:len(l.open)-1]
	defer l.drop(child)
	if len(l.open) > 0 {
		l.top().back = true
		return nil
	}
	if len(l.shut) == 0 {
		return nil
	}
	was := l.shut[len(l.shut)-1]
	l.shut = l.shut[:len(l.shut)-1]
	fd, err := openDir(child.fd, "..")
	if err != nil {
		return fmt.Errorf("go back from a directory: %w", err)
	}
	var st unix.Stat_t
	if err = unix.Fstat(fd, &st); err == nil && (st.Ino != was.ino || uint64(st.Dev) != l.dev) {
		err = ErrMoved
	}
	if err == nil {
		_, err = unix.Seek(fd, was.at, unix.SEEK_SET)
	}
	if err != nil {
		unix.Close(fd)
		return fmt.Errorf("go back from a directory: %w", err)
	}
	l.open = append(l.open, level{fd: fd, ino: was.ino, at: was.at, buf: l.buffer(), back: true})
	return nil
}

func (l *levels) buffer() []byte {
	if n := len(l.free); n > 0 {
		buf := l.free[n-1]
		l.free = l.free[:n-1]
		return buf
	}
	return make([]byte, chunk)
}

// drop gives up a level.
func (l *levels) drop(v level) {
	unix.Close(v.fd)
	l.free = append(l.free, v.buf)
}

// close gives up all levels.
func (l *levels) close() {
	for _, v := range l.open {
		l.drop(v)
	}
	l.open, l.shut = nil, nil
}

// next returns the entry at which the level is, or false at the end. It returns the
// same one until pass is called.
func (v *level) next() (dirent, bool, error) {
	for {
		if len(v.unread) == 0 {
			n, err := unix.Getdents(v.fd, v.buf)
			if err == unix.EINTR {
				continue
			}
			if n <= 0 || err == unix.ENOENT { // the end, or the directory was removed
				return dirent{}, false, ignore(err, unix.ENOENT)
			}
			v.unread = v.buf[:n]
		}
		e := parse(v.unread)
		if e.name != "." && e.name != ".." {
			return e, true, nil
		}
		v.unread, v.at = v.unread[e.size:], e.end
	}
}

// pass goes to the entry behind e, which next has returned.
func (v *level) pass(e dirent) {
	v.unread, v.at, v.back = v.unread[e.size:], e.end, false
}

// parse reads the first entry that the kernel has put into a buffer: inode, position
// of the next entry, length, type, and the name up to a zero (struct linux_dirent64).
func parse(b []byte) dirent {
	const nameAt = 19
	size := int(binary.NativeEndian.Uint16(b[16:]))
	name, _, _ := bytes.Cut(b[nameAt:size], []byte{0})
	return dirent{
		name:  string(name),
		isDir: b[18] == unix.DT_DIR,
		end:   int64(binary.NativeEndian.Uint64(b[8:])),
		size:  size,
	}
}

// ignore returns err unless it is one of those that do not matter.
func ignore(err error, but ...error) error {
	for _, e := range but {
		if errors.Is(err, e) {
			return nil
		}
	}
	return err
}
