// Package fileowner says whose a file is, and whether it is its owner's alone: for the
// files that a program trusts, and those that it makes for somebody else.
package fileowner

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// An Owner is whose a file is.
type Owner struct{ UID, GID int }

// Of is whose the file is that info was asked of the file system.
func Of(info fs.FileInfo) Owner {
	stat := info.Sys().(*syscall.Stat_t)
	return Owner{UID: int(stat.Uid), GID: int(stat.Gid)}
}

// OfPath is whose the file is to which a path leads.
func OfPath(path string) (Owner, error) {
	info, err := os.Stat(path)
	if err != nil {
		return Owner{}, err
	}
	return Of(info), nil
}

// Give makes a file that this process has made the owner's, by chown. What is the
// process's own already needs nothing.
func (o Owner) Give(chown func(uid, gid int) error) error {
	if o.UID == os.Geteuid() && o.GID == os.Getegid() {
		return nil
	}
	return chown(o.UID, o.GID)
}

// GiveLike is Give for the owner of dir, where the process is root: nobody else may give
// files away. Of a directory that cannot be looked at nothing is given.
func GiveLike(dir string, chown func(uid, gid int) error) error {
	owner, err := OfPath(dir)
	if err != nil || os.Geteuid() != 0 {
		return nil
	}
	return owner.Give(chown)
}

// Private returns an error if others than its owner have access to the file at path.
func Private(path string, info fs.FileInfo) error {
	if mode := info.Mode().Perm(); mode&0o077 != 0 {
		return fmt.Errorf("%s has the mode %04o, so that others than its owner have access: chmod 0600 it, and change what is in it unless you trust them", path, mode)
	}
	return nil
}

// Trusted returns an error unless the file at path is its owner's alone, who is us, root or
// whose the directory is.
func Trusted(path string, info fs.FileInfo) error {
	if err := Private(path, info); err != nil {
		return err
	}
	owner := Of(info).UID
	directory, err := OfPath(filepath.Dir(path))
	if owner != 0 && owner != os.Geteuid() && (err != nil || owner != directory.UID) {
		return fmt.Errorf("%s belongs to the user %d, who is neither root nor whose the directory is: chown it", path, owner)
	}
	return nil
}
