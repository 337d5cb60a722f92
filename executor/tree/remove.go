package tree

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Remove removes what is at path, with everything below if it is a directory; that
// nothing is there is no error. The directory in which it lies must be the caller's
// own. It takes no space on the file system, and of memory 16 bytes for each level.
// It goes on behind what cannot be removed and returns the first error. If ctx ends,
// what is left stays where it is, and another call goes on with it.
func Remove(ctx context.Context, path string) error {
	parent, err := Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer parent.Close()
	r := &removal{ctx: ctx}
	defer r.close()
	if err := r.remove(parent.fd, filepath.Base(path)); err != nil {
		return fmt.Errorf("remove %.256q: %w", path, err)
	}
	return nil
}

type removal struct {
	levels
	ctx    context.Context
	failed error // the first thing that could not be removed
}

func (r *removal) remove(parent int, name string) error {
	for {
		done, err := unlink(parent, dirent{name: name})
		if done || err != nil || r.failed != nil {
			return errors.Join(r.failed, err)
		}
		fd, err := openDir(parent, name)
		if err == nil {
			err = r.enter(fd)
		}
		if err == nil {
			err = r.run()
		}
		r.close()
		if ignore(err, ErrMoved) != nil { // moved, by whoever is still alive: from the top
			return errors.Join(r.failed, err)
		}
	}
}

// run empties the directory at the top, and whatever is below it first.
func (r *removal) run() error {
	for r.depth() > 0 {
		if err := r.ctx.Err(); err != nil {
			return err
		}
		v := r.top()
		e, ok, err := v.next()
		if err != nil {
			return err
		}
		if !ok {
			if err := r.leave(); err != nil {
				return err
			}
			continue
		}
		if err := r.visit(v, e); err != nil {
			return err
		}
	}
	return nil
}

// visit removes an entry or goes into it. A directory that is left is visited once
// more: then it is empty, or something in it could not be removed.
func (r *removal) visit(v *level, e dirent) error {
	done, err := unlink(v.fd, e)
	if err == nil && !done && v.back && r.failed != nil {
		v.pass(e)
		return nil
	}
	if err == nil && !done {
		var fd int
		if fd, err = openDir(v.fd, e.name); err == nil {
			if err = r.enter(fd); err == nil {
				return nil
			}
		}
	}
	switch {
	case errors.Is(err, unix.EMFILE), errors.Is(err, unix.ENFILE), errors.Is(err, unix.ENOMEM):
		return err // of ours, not of the entry's
	case ignore(err, unix.ENOENT) != nil && r.failed == nil:
		r.failed = fmt.Errorf("%.64q: %w", e.name, err)
	}
	v.pass(e)
	return nil
}

// unlink removes a file or an empty directory. It reports whether that is gone; if
// not, and without an error, it is a directory that holds something.
func unlink(dir int, e dirent) (removed bool, err error) {
	if !e.isDir {
		err = unix.Unlinkat(dir, e.name, 0)
		if ignore(err, unix.ENOENT) == nil {
			return true, nil
		}
		if err != unix.EISDIR && err != unix.EPERM { // the latter is POSIX's word for a directory
			return false, err
		}
	}
	switch err = unix.Unlinkat(dir, e.name, unix.AT_REMOVEDIR); err {
	case nil, unix.ENOENT:
		return true, nil
	case unix.ENOTEMPTY, unix.EEXIST:
		return false, nil
	}
	return false, err
}
