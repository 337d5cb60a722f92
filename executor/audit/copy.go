package audit

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"syscall"
)

// Copy gives to put what the log in dir consists of, its private key among it, as at one
// moment, while others may append. The tree's tiles are left out: Open makes them again.
func Copy(dir string, put func(name string, size int64, content io.Reader) error) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return fmt.Errorf("copy the audit log: %w", err)
	}
	defer root.Close()
	files, last, keys, err := still(root)
	if err != nil {
		return fmt.Errorf("copy the audit log %s: %w", dir, err)
	}
	for i, name := range files {
		size := last
		if i < len(files)-1 { // which nobody appends to any more
			info, err := root.Stat(name)
			if err != nil {
				return err
			}
			size = info.Size()
		}
		f, err := root.Open(name)
		if err != nil {
			return err
		}
		if err := errors.Join(put(name, size, f), f.Close()); err != nil {
			return err
		}
	}
	for _, name := range []string{keyFile, nextFile} {
		if key, ok := keys[name]; ok {
			if err := put(name, int64(len(key)), strings.NewReader(key)); err != nil {
				return err
			}
		}
	}
	return nil
}

// still lists the files of records, with the length of the last one, and the keys, while
// nobody appends or changes a key.
func still(root *os.Root) (files []string, last int64, keys map[string]string, err error) {
	lock, err := root.OpenFile(lockFile, os.O_RDWR, 0)
	if err != nil {
		return nil, 0, nil, err
	}
	defer lock.Close() // which unlocks it
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_SH); err != nil {
		return nil, 0, nil, err
	}
	if files, err = recordsFiles(root); err != nil {
		return nil, 0, nil, err
	}
	if len(files) > 0 {
		info, err := root.Stat(files[len(files)-1])
		if err != nil {
			return nil, 0, nil, err
		}
		last = info.Size()
	}
	keys = map[string]string{}
	for _, name := range []string{keyFile, nextFile} {
		switch key, err := root.ReadFile(name); {
		case err == nil:
			keys[name] = string(key)
		case !errors.Is(err, fs.ErrNotExist):
			return nil, 0, nil, err
		}
	}
	return files, last, keys, nil
}
