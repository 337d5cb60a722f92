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
