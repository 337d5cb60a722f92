package store

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"

	"sallyport/executor/api"
)

// Remains are what is on disk of an execution that has no result yet.
type Remains struct {
	Meta Meta
	// Events are those on record; one that cannot be read is left out. Lines are the same
	// as they are stored, each with its newline and valid until the next is taken.
	Events iter.Seq[api.Event]
	Lines  iter.Seq[[]byte]
	// Policy is what the execution might do at most; nil where that is not on record.
	Policy *api.EffectivePolicy
	// Draft is what KeepDraft was given last, nil for nothing.
	Draft []byte
	// Github is what KeepGithub was given last, nil for nothing.
	Github *api.GithubReceipt
}

// KeepDraft writes down what is known of the run's audit record while the run goes on.
func (e *Entry) KeepDraft(draft []byte) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.file == nil {
		return ErrFinished
	}
	if err := e.writeFile(draftFile, draft, false); err != nil {
		return fmt.Errorf("write down the draft of the audit record of %s: %w", e.Meta.ID, err)
	}
	return nil
}

// Look calls f, in any case, with what can be read on disk of an execution that has no
// result yet.
func (e *Entry) Look(f func(Remains)) error {
	file, err := e.store.root.Open(e.path(eventsFile))
	if err != nil {
		f(Remains{Meta: e.Meta})
		return fmt.Errorf("look at what is on disk of %s: %w", e.Meta.ID, err)
	}
	defer file.Close()
	left, err := e.remains(file, e.Size())
	f(left)
	return err
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

// remains are those of an execution whose events are the first size bytes of f.
func (e *Entry) remains(f *os.File, size int64) (Remains, error) {
	r := Remains{Meta: e.Meta, Policy: e.policy()}
	r.Lines = func(yield func([]byte) bool) {
		for line, err := range lines(bufio.NewReader(io.NewSectionReader(f, 0, size))) {
			if err != nil || !yield(line) {
				return
			}
		}
	}
	r.Events = func(yield func(api.Event) bool) {
		for line := range r.Lines {
			var ev api.Event
			if json.Unmarshal(line, &ev) == nil && !yield(ev) {
				return
			}
		}
	}
	var err error
	if r.Draft, err = e.kept(draftFile); err != nil {
		return r, fmt.Errorf("read the draft of the audit record: %w", err)
	}
	data, err := e.kept(githubFile)
	if err == nil && data != nil {
		err = json.Unmarshal(data, &r.Github)
	}
	if err != nil {
		return r, fmt.Errorf("read the access to GitHub: %w", err)
	}
	return r, nil
}

// kept is a file of the execution, nil where there is none.
func (e *Entry) kept(name string) ([]byte, error) {
	data, err := e.store.root.ReadFile(e.path(name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return data, err
}

// recover ends an execution whose executor died: it cuts a line that was not
// written whole and gives the execution its result.
func (e *Entry) recover() error {
	f, err := e.store.root.OpenFile(e.path(eventsFile), os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o600)
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
		left, err := e.remains(f, e.size)
		if err != nil {
			e.store.log.Warn("what an executor that died has left of a run cannot be read", "run", e.Meta.ID, "error", err)
		}
		return e.Finish(e.store.lost(left))
	}
	e.file = nil // the result was the last thing that its executor wrote
	if err := errors.Join(f.Close(), e.writeResult(*last.Result)); err != nil {
		return err
	}
	return e.announce(*last.Result)
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
