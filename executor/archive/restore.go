package archive

import (
	"archive/tar"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"sallyport/executor/state"
	"sallyport/executor/statedir"
)

// Restore puts what an archive holds into a state directory that holds nothing, which it
// makes if need be, while no executor uses it. After an error it holds nothing again.
func Restore(ctx context.Context, from io.Reader, dir string) (err error) {
	lock, err := statedir.Lock(dir)
	if err != nil {
		return fmt.Errorf("restore into %s: %w", dir, err)
	}
	defer func() {
		if err = errors.Join(err, lock.Close()); err != nil {
			err = fmt.Errorf("restore into %s: %w", dir, err)
		}
	}()
	there, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range there {
		if e.Name() != filepath.Base(lock.Name()) {
			return fmt.Errorf("it holds %s; move what is there away first, or name another directory", e.Name())
		}
	}
	tmp := filepath.Join(dir, "restore")
	if err := os.Mkdir(tmp, 0o700); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(tmp)) }()
	if err := extract(ctx, from, tmp, dir); err != nil {
		return err
	}
	if err := sound(ctx, filepath.Join(tmp, filepath.Base(statedir.Database(dir)))); err != nil {
		return err
	}
	if err := unix.Syncfs(int(lock.Fd())); err != nil {
		return err
	}
	return moveUp(tmp, dir)
}

// extract writes the files of an archive below a directory.
func extract(ctx context.Context, from io.Reader, to, dir string) error {
	root, err := os.OpenRoot(to)
	if err != nil {
		return err
	}
	defer root.Close()
	archive := tar.NewReader(from)
	var first head
	if h, err := archive.Next(); err != nil || h.Name != headFile || json.NewDecoder(archive).Decode(&first) != nil {
		return errors.New("the file is no backup of sallyport")
	}
	if first.Format != format {
		return fmt.Errorf("the backup has the format %d, this release reads %d", first.Format, format)
	}
	parts := []string{statedir.Database(dir), statedir.Executions(dir), statedir.Sessions(dir), statedir.Audit(dir)}
	for files := 0; ; files++ {
		h, err := archive.Next()
		if err == nil && h.Name == endFile {
			var last end
			if err := json.NewDecoder(archive).Decode(&last); err != nil || last.Files != files {
				return fmt.Errorf("the backup has %d files and should have %d", files, last.Files)
			}
			return nil
		}
		if err != nil {
			return fmt.Errorf("the backup has no end: %w", err)
		}
		part, _, below := strings.Cut(h.Name, "/")
		i := slices.IndexFunc(parts, func(p string) bool { return filepath.Base(p) == part })
		if h.Typeflag != tar.TypeReg || !fs.ValidPath(h.Name) || i < 0 || below == (i == 0) {
			return fmt.Errorf("the backup has %.128q, which no backup holds", h.Name)
		}
		if err := errors.Join(ctx.Err(), write(root, h, archive)); errors.Is(err, io.ErrUnexpectedEOF) {
			return fmt.Errorf("the backup has no end: it was cut in %s", h.Name)
		} else if err != nil {
			return err
		}
	}
}

func write(root *os.Root, h *tar.Header, content io.Reader) error {
	if err := root.MkdirAll(path.Dir(h.Name), 0o700); err != nil {
		return err
	}
	f, err := root.OpenFile(h.Name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, content)
	return errors.Join(err, f.Close(), root.Chtimes(h.Name, h.ModTime, h.ModTime))
}

// sound checks that a database can be used.
func sound(ctx context.Context, path string) error {
	db, err := state.Attach(ctx, path)
	if err != nil {
		return err
	}
	defer db.Close()
	var says string
	if err := db.QueryRowContext(ctx, "PRAGMA integrity_check(1)").Scan(&says); err != nil {
		return fmt.Errorf("check the backup's database: %w", err)
	}
	if says != "ok" {
		return fmt.Errorf("the backup's database is damaged: %s", says)
	}
	return nil
}

// moveUp puts what is in one directory into the one above, or takes all back.
func moveUp(from, to string) error {
	entries, err := os.ReadDir(from)
	if err != nil {
		return err
	}
	for i, e := range entries {
		if err := os.Rename(filepath.Join(from, e.Name()), filepath.Join(to, e.Name())); err != nil {
			for _, moved := range entries[:i] {
				err = errors.Join(err, os.RemoveAll(filepath.Join(to, moved.Name())))
			}
			return err
		}
	}
	d, err := os.Open(to)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
