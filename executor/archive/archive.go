// Package archive takes what an executor's state directory holds out into one file, while
// the executor works there, and puts it into another directory: the database, executions,
// session logs and the audit log with its key. What belongs to the machine or to a run
// under way, and the secrets of others, stays out.
//
// An archive is a tar file. Its first file says what it is; its last one, how many came
// before, so that one that was cut is told from a whole one.
package archive

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"sallyport/executor/audit"
	"sallyport/executor/state"
	"sallyport/executor/statedir"
)

// The files that an archive begins and ends with, and its format.
const (
	headFile = "sallyport-backup.json"
	endFile  = "end.json"
	format   = 1
)

// A head is the first file.
type head struct {
	Format int       `json:"format"`
	Made   time.Time `json:"made"`
}

// An end is the last file.
type end struct {
	Files int `json:"files"` // between the two
}

// A writer writes an archive.
type writer struct {
	ctx   context.Context
	state string
	*tar.Writer
	files int
}

// Write writes an archive of a state directory, of which an executor may make use
// meanwhile. Each execution is there as it was at some moment of Write; one that was under
// way is lost to who restores it, as if its executor had died then.
func Write(ctx context.Context, to io.Writer, dir string) error {
	w := &writer{ctx: ctx, state: dir, Writer: tar.NewWriter(to)}
	err := w.json(headFile, head{format, time.Now().UTC()})
	// The rows come before what they are of: an execution without a row is taken over, a
	// finished row without an execution dropped. The audit log, which is told of a run before
	// its result is written, comes last.
	for _, part := range []func() error{w.database, w.executions, w.sessions, w.audit} {
		if err == nil {
			err = part()
		}
	}
	if err == nil {
		err = w.json(endFile, end{w.files - 1})
	}
	if err = errors.Join(err, w.Close()); err != nil {
		return fmt.Errorf("back up %s: %w", dir, err)
	}
	return nil
}

func (w *writer) database() error {
	tmp, err := os.MkdirTemp(w.state, "backup-") // which is private, and on a disk
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	db, err := state.Attach(w.ctx, statedir.Database(w.state))
	if err != nil {
		return err
	}
	defer db.Close()
	copied := filepath.Join(tmp, "copy")
	if err := state.Copy(w.ctx, db, copied); err != nil {
		return err
	}
	f, err := os.Open(copied)
	if err != nil {
		return err
	}
	defer f.Close()
	return w.copy(filepath.Base(statedir.Database(w.state)), f)
}

// executions has the result of each before its events, which were written before it, and
// both before the files that they speak of.
func (w *writer) executions() error {
	root, err := os.OpenRoot(statedir.Executions(w.state))
	if err != nil {
		return err
	}
	defer root.Close()
	dir, err := root.Open(".")
	if err != nil {
		return err
	}
	defer dir.Close()
	for {
		names, err := dir.Readdirnames(1000)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		for _, name := range names {
			for _, file := range []string{"result.json", "events.ndjson"} {
				if err := w.file(root, path.Join(name, file), filepath.Base(root.Name())); err != nil {
					return err
				}
			}
			err := w.tree(root, name, func(p string) bool {
				return p == name+"/result.json" || p == name+"/events.ndjson" || path.Dir(p) == name && strings.HasSuffix(p, ".tmp")
			})
			if err != nil {
				return err
			}
		}
	}
}

func (w *writer) sessions() error {
	root, err := os.OpenRoot(statedir.Sessions(w.state))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer root.Close()
	return w.tree(root, ".", func(string) bool { return false })
}

func (w *writer) audit() error {
	dir := statedir.Audit(w.state)
	return audit.Copy(dir, func(name string, size int64, content io.Reader) error {
		return w.put(path.Join(filepath.Base(dir), name), size, time.Now(), content)
	})
}

// tree writes the regular files below a directory but those that are left out. What goes
// away meanwhile is not there.
func (w *writer) tree(root *os.Root, dir string, leaveOut func(string) bool) error {
	return fs.WalkDir(root.FS(), dir, func(p string, d fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil
		case err != nil:
			return err
		case !d.Type().IsRegular() || leaveOut(p):
			return w.ctx.Err()
		}
		return w.file(root, p, filepath.Base(root.Name()))
	})
}

// file writes a regular file, if it is there, below a name.
func (w *writer) file(root *os.Root, name, below string) error {
	f, err := root.OpenFile(name, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	return w.copy(path.Join(below, name), f)
}

func (w *writer) copy(name string, f *os.File) error {
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return err
	}
	return w.put(name, info.Size(), info.ModTime(), f) // what is appended meanwhile is of later
}

func (w *writer) put(name string, size int64, changed time.Time, content io.Reader) error {
	if err := w.ctx.Err(); err != nil {
		return err
	}
	w.files++
	err := w.WriteHeader(&tar.Header{Name: name, Size: size, Mode: 0o600, ModTime: changed, Format: tar.FormatPAX})
	if err == nil {
		_, err = io.CopyN(w, content, size)
	}
	if errors.Is(err, io.EOF) {
		err = errors.New("it was cut while it was read; try again")
	}
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

func (w *writer) json(name string, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return w.put(name, int64(len(data)), time.Now(), bytes.NewReader(data))
}
