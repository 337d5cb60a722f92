package store

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"log/slog"
	"os"

	"sallyport/executor/api"
)

// Remains are what an executor that died has left of an execution.
type Remains struct {
	Meta Meta
	// Events are those on record; one that cannot be read is left out.
	Events iter.Seq[api.Event]
	// Github is what KeepGithub was given last, nil for nothing.
	Github *api.GithubReceipt
}

// KeepGithub writes down what the run can do on GitHub, for an executor that does
// not live to put it into the result.
func (e *Entry) KeepGithub(r api.GithubReceipt) error {
	data, err := json.Marshal(r)
	if err != nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.file == nil {
		return ErrFinished
	}
	if err := e.writeFile(githubFile, data, true); err != nil {
		return fmt.Errorf("write down the access to GitHub of %s: %w", e.Meta.ID, err)
	}
	return nil
}

// remains are those of an execution whose events are the whole lines of f.
func (e *Entry) remains(f *os.File) (Remains, error) {
	r := Remains{Meta: e.Meta, Events: func(yield func(api.Event) bool) {
		for line, err := range lines(bufio.NewReader(io.NewSectionReader(f, 0, e.size))) {
			var ev api.Event
			if err != nil || json.Unmarshal(line, &ev) == nil && !yield(ev) {
				return
			}
		}
	}}
	data, err := e.root.ReadFile(e.path(githubFile))
	if errors.Is(err, fs.ErrNotExist) {
		return r, nil
	}
	if err == nil {
		err = json.Unmarshal(data, &r.Github)
	}
	if err != nil {
		return r, fmt.Errorf("read the access to GitHub: %w", err)
	}
	return r, nil
}

// reopen makes the entry of an execution of an earlier process.
func reopen(root *os.Root, meta Meta, log *slog.Logger, lost func(Remains) api.Result) (*Entry, error) {
	e := newEntry(root, meta)
	if info, err := root.Stat(e.path(eventsFile)); err == nil {
		e.size = info.Size()
	}
	switch _, err := root.Stat(e.path(resultFile)); {
	case err == nil:
		close(e.done)
		return e, nil
	case !errors.Is(err, fs.ErrNotExist):
		return nil, err
	}
	return e, e.recover(log, lost)
}

// recover ends an execution whose executor died: it cuts a line that was not
// written whole and gives the execution its result.
func (e *Entry) recover(log *slog.Logger, lost func(Remains) api.Result) error {
	f, err := e.root.OpenFile(e.path(eventsFile), os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	last, err := e.count(f)
	if err != nil {
		f.Close()
		return err
	}
	if err := f.Truncate(e.size); err != nil {
		f.Close()
		return err
	}
	e.file = f
	if last.Result == nil {
		left, err := e.remains(f)
		if err != nil {
			log.Warn("what a run had of GitHub is not known", "run", e.Meta.ID, "error", err)
		}
		return e.Finish(lost(left))
	}
	e.file = nil // the result was the last thing that its executor wrote
	close(e.done)
	return errors.Join(f.Close(), e.writeResult(*last.Result))
}

// count sets seq and size from the whole lines in f and returns the last event.
func (e *Entry) count(f *os.File) (api.Event, error) {
	e.seq, e.size = 0, 0
	var last []byte
	for line, err := range lines(bufio.NewReader(f)) {
		if err != nil {
			return api.Event{}, err
		}
		e.seq++
		e.size += int64(len(line))
		last = append(last[:0], line...)
	}
	var ev api.Event
	if last == nil {
		return ev, nil
	}
	if err := json.Unmarshal(last, &ev); err != nil {
		return ev, fmt.Errorf("read the last event: %w", err)
	}
	return ev, nil
}
