package store

import (
	"cmp"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"

	"sallyport/executor/api"
	"sallyport/firewall"
)

// begin brings rows and directories together: a directory that has no row is taken over, a
// finished row without a directory goes, and what has no end gets one. No file of an
// execution that the rows know to have finished is opened.
func (s *Store) begin() error {
	dir, err := s.root.Open(".")
	if err != nil {
		return err
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return err
	}
	slices.Sort(names)
	strange, gone, err := s.rows.compare(names)
	if err != nil {
		return err
	}
	if err := s.rows.drop(gone); err != nil {
		return err
	}
	if len(gone) > 0 {
		s.log.Warn("executions have gone from the disk", "runs", len(gone))
	}
	for part := range slices.Chunk(strange, takeoverPart) {
		if err := s.takeOver(part); err != nil {
			return err
		}
	}
	unfinished, err := s.rows.unfinished()
	if err != nil {
		return err
	}
	for _, meta := range unfinished {
		if err := s.reopen(meta); err != nil {
			s.log.Warn("left out an unreadable execution", "run", meta.ID, "error", err)
		}
	}
	return nil
}

// compare says which of the names, which are sorted, no row is of, and which finished
// rows are of none of them.
func (r rows) compare(names []string) (strange, gone []string, err error) {
	seen := make([]bool, len(names))
	found, err := r.db.Query("SELECT id, finished FROM execution INDEXED BY execution_ended WHERE finished IN (0, 1)")
	if err != nil {
		return nil, nil, err
	}
	defer found.Close()
	for found.Next() {
		var id string
		var finished bool
		if err := found.Scan(&id, &finished); err != nil {
			return nil, nil, err
		}
		if i, ok := slices.BinarySearch(names, id); ok {
			seen[i] = true
		} else if finished {
			gone = append(gone, id)
		}
	}
	for i, name := range names {
		if !seen[i] {
			strange = append(strange, name)
		}
	}
	return strange, gone, found.Err()
}

func (r rows) unfinished() (all []Meta, err error) {
	found, err := r.db.Query("SELECT meta FROM execution WHERE finished = 0 ORDER BY accepted, id")
	if err != nil {
		return nil, err
	}
	defer found.Close()
	for found.Next() {
		var text string
		var m Meta
		if err := errors.Join(found.Scan(&text), json.Unmarshal([]byte(text), &m)); err != nil {
			return nil, err
		}
		all = append(all, m)
	}
	return all, found.Err()
}

// takeoverPart is how many directories are taken over at once, so that a start neither
// waits for the disk after each nor remembers all.
const takeoverPart = 500

// takeOver makes the rows of directories that have none: of an executor that had no
// database, or of a backup.
func (s *Store) takeOver(names []string) error {
	return s.rows.change(func(tx *sql.Tx) error {
		for _, name := range names {
			meta, err := s.readMeta(name)
			if err != nil {
				s.log.Warn("left out an unreadable execution", "run", name, "error", err)
				continue
			}
			if err := add(tx, meta); err != nil {
				return err
			}
			if time.Since(meta.Accepted) < keyLife {
				if _, err := addKey(tx, meta); err != nil {
					return err
				}
			}
			e := newEntry(s, meta)
			switch _, err := s.root.Stat(e.path(resultFile)); {
			case errors.Is(err, fs.ErrNotExist): // reopen sees to its end
			case err != nil:
				return err
			default:
				if err := finish(tx, meta, e.end(e.written())); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

func (s *Store) readMeta(id string) (Meta, error) {
	var m Meta
	data, err := s.root.ReadFile(id + "/" + metaFile)
	if errors.Is(err, fs.ErrNotExist) {
		return s.readOldMeta(id)
	}
	if err == nil {
		err = json.Unmarshal(data, &m)
	}
	if err == nil && m.ID != id {
		err = fmt.Errorf("it is of execution %q", m.ID)
	}
	if err != nil {
		return Meta{}, fmt.Errorf("read %s: %w", metaFile, err)
	}
	m.Backend = cmp.Or(m.Backend, firstBackend)
	return m, nil
}

// readOldMeta reads the record of an executor that wrote it and the request as one.
func (s *Store) readOldMeta(id string) (Meta, error) {
	var old struct {
		Meta
		Request struct {
			Config struct{ Model string }
			Opts   struct{ TaskID string }
		}
	}
	data, err := s.root.ReadFile(id + "/" + requestFile)
	if err == nil {
		err = json.Unmarshal(data, &old)
	}
	if err == nil && old.ID != id {
		err = fmt.Errorf("it is of execution %q", old.ID)
	}
	if err != nil {
		return Meta{}, fmt.Errorf("read %s: %w", requestFile, err)
	}
	old.Model, old.TaskID, old.Backend = old.Request.Config.Model, old.Request.Opts.TaskID, firstBackend
	return old.Meta, newEntry(s, old.Meta).writeMeta()
}

// reopen gives an execution of an earlier process its end.
func (s *Store) reopen(meta Meta) error {
	e := newEntry(s, meta)
	if err := s.root.Mkdir(meta.ID, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	if err := e.writeMeta(); err != nil {
		return err
	}
	switch _, err := s.root.Stat(e.path(resultFile)); {
	case err == nil: // its executor died before the rows knew
		return s.rows.finish(meta, e.end(e.written()))
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	s.keep(e)
	err := e.recover()
	if err != nil && !e.Finished() {
		s.release(e)
	}
	return err
}

// written is the result as it is on disk. One that cannot be read is lost, as its own route
// says, too.
func (e *Entry) written() api.Result {
	res, err := e.Result()
	if err != nil {
		return api.Result{Error: &api.Error{Code: api.CodeLost}}
	}
	return res
}

// end is that of an execution whose files are on disk.
func (e *Entry) end(res api.Result) end {
	x := end{at: e.Meta.Accepted.Add(time.Duration(res.DurationMS) * time.Millisecond), outcome: outcome(res)}
	fs.WalkDir(e.store.root.FS(), e.Meta.ID, func(_ string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			if info, err := d.Info(); err == nil {
				x.bytes += info.Size()
			}
		}
		return nil // what cannot be seen does not count
	})
	return x
}

// outcome is a result in short.
func outcome(res api.Result) api.Outcome {
	o := api.Outcome{Success: res.Success, StopReason: res.StopReason, DurationMS: res.DurationMS, CostUSD: res.CostUSD}
	if res.Error != nil {
		o.Code = res.Error.Code
	}
	refused := map[string]bool{}
	for _, h := range res.Receipt.Hosts {
		if h.Verdict != firewall.Allow {
			refused[h.Host] = true
		}
	}
	o.Refused = len(refused)
	return o
}
