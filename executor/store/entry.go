package store

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path"
	"sync"
	"time"

	"sallyport/executor/api"
)

// ErrFinished says that an execution has its result already.
var ErrFinished = errors.New("the execution has ended")

// An Entry is the record of one execution. It is safe for concurrent use.
type Entry struct {
	Meta Meta

	store *Store
	done  chan struct{} // closed when the result is there

	mu      sync.Mutex // guards what follows
	file    *os.File   // where events go; nil once there is a result
	seq     int64      // of the last event; unknown (0) after a restart
	size    int64      // of the whole lines of the file, in bytes
	running bool
	changed chan struct{} // closed, and replaced, at every change
	result  *api.Result   // kept only where it could not be written,
	last    []byte        // as is its event
}

func newEntry(s *Store, meta Meta) *Entry {
	return &Entry{Meta: meta, store: s, done: make(chan struct{}), changed: make(chan struct{})}
}

func (e *Entry) path(name string) string { return path.Join(e.Meta.ID, name) }

// Done is closed once the execution has its result.
func (e *Entry) Done() <-chan struct{} { return e.done }

// Finished reports whether the execution has its result.
func (e *Entry) Finished() bool {
	select {
	case <-e.done:
		return true
	default:
		return false
	}
}

// Append numbers an event, gives it its time and writes it. An event that could
// not be written is gone and takes no number.
func (e *Entry) Append(ev api.Event) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.append(ev)
}

func (e *Entry) append(ev api.Event) error {
	if e.file == nil {
		return ErrFinished
	}
	line, err := e.encode(ev)
	if err != nil {
		return err
	}
	if _, err := e.file.Write(line); err != nil {
		err = fmt.Errorf("write event: %w", err)
		return errors.Join(err, e.file.Truncate(e.size)) // leave no part of a line
	}
	e.seq++
	e.size += int64(len(line))
	e.notify()
	return nil
}

// encode makes the line of the next event.
func (e *Entry) encode(ev api.Event) ([]byte, error) {
	ev.Seq, ev.Time = e.seq+1, time.Now().UTC()
	var line bytes.Buffer
	enc := json.NewEncoder(&line) // ends the line, and escapes any newline within
	enc.SetEscapeHTML(false)
	if err := enc.Encode(ev); err != nil {
		return nil, fmt.Errorf("encode event: %w", err)
	}
	return line.Bytes(), nil
}

// notify wakes the readers. The caller holds the mutex.
func (e *Entry) notify() {
	close(e.changed)
	e.changed = make(chan struct{})
}

// Size is the length of the events so far, in bytes.
func (e *Entry) Size() int64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.size
}

// Run notes that the execution no longer waits in the queue.
func (e *Entry) Run() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.running = true
}

// Finish writes the result: as the last event, then as a file of its own. The
// execution is over even where that fails; the result is then kept in memory.
func (e *Entry) Finish(res api.Result) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.file == nil {
		return ErrFinished
	}
	res.EffectivePolicy = e.policy()
	end := api.Event{Type: api.EventResult, Result: &res}
	err := e.append(end)
	if err != nil {
		e.last, _ = e.encode(end) // readers get it all the same
	}
	err = errors.Join(err, e.file.Sync(), e.file.Close())
	e.file = nil
	if err == nil {
		err = e.writeResult(res)
	}
	if err == nil {
		err = e.announce(res)
	} else {
		e.result = &res
		close(e.done)
	}
	e.notify()
	if err != nil {
		return fmt.Errorf("record the result of %s: %w", e.Meta.ID, err)
	}
	return nil
}

// announce tells everybody of the result, which is on disk: first the rows, which otherwise
// the next start tells.
func (e *Entry) announce(res api.Result) error {
	err := e.store.rows.finish(e.Meta, e.end(res))
	close(e.done)
	if err == nil {
		e.store.release(e)
	}
	return err
}

func (e *Entry) writeResult(res api.Result) error {
	data, err := json.Marshal(res)
	if err != nil {
		return err
	}
	err = e.writeFile(resultFile, data, true)
	if err == nil {
		e.store.root.Remove(e.path(githubFile)) // the result has it now
		e.store.root.Remove(e.path(draftFile))  // and the audit log this
	}
	return err
}

// State is one of api's State constants.
func (e *Entry) State() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.Finished():
		return api.StateFinished
	case e.running:
		return api.StateRunning
	}
	return api.StateQueued
}

// Execution is the state, with the result once there is one.
func (e *Entry) Execution() (api.Execution, error) {
	x := api.Execution{ID: e.Meta.ID, State: e.State(), TaskID: e.Meta.TaskID}
	if w := e.Meta.Workflow; w != (api.Workflow{}) {
		x.Workflow = &w
	}
	if x.State != api.StateFinished {
		return x, nil
	}
	res, err := e.Result()
	if err != nil {
		return api.Execution{}, err
	}
	x.Result = &res
	return x, nil
}

// summary is the execution in a list.
func (e *Entry) summary(state string) api.ExecutionSummary {
	x := e.Meta.summary(state, nil)
	if state == api.StateFinished {
		o := outcome(e.written())
		x.Outcome = &o
	}
	return x
}

// Result is the result of a finished execution.
func (e *Entry) Result() (api.Result, error) {
	e.mu.Lock()
	kept := e.result
	e.mu.Unlock()
	if kept != nil {
		return *kept, nil
	}
	var res api.Result
	data, err := e.store.root.ReadFile(e.path(resultFile))
	if err == nil {
		err = json.Unmarshal(data, &res)
	}
	if err != nil {
		return api.Result{}, fmt.Errorf("read the result of %s: %w", e.Meta.ID, err)
	}
	return res, nil
}

func (e *Entry) writePolicy(p *api.EffectivePolicy) error {
	if p == nil {
		return nil
	}
	data, err := json.Marshal(p)
	if err != nil {
		return err
	}
	return e.writeFile(policyFile, data, false)
}

// policy is what the execution might do at most; nil where that is not on record.
func (e *Entry) policy() *api.EffectivePolicy {
	data, err := e.store.root.ReadFile(e.path(policyFile))
	p := new(api.EffectivePolicy)
	if err != nil || json.Unmarshal(data, p) != nil {
		return nil
	}
	return p
}

func (e *Entry) writeMeta() error {
	meta := e.Meta
	if meta.Backend == firstBackend {
		meta.Backend = ""
	}
	data, err := json.Marshal(meta)
	if err != nil {
		return err
	}
	return e.writeFile(metaFile, data, false)
}

// writeFile writes a file of the execution so that it is there whole or not at
// all; if it is durable, even where the machine fails afterwards.
func (e *Entry) writeFile(name string, data []byte, durable bool) error {
	tmp := e.path(name + ".tmp")
	f, err := e.store.root.OpenFile(tmp, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if durable && err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return e.store.root.Rename(tmp, e.path(name))
}
