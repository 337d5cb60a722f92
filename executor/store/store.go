// Package store keeps executions on disk: what was asked, every event, the
// result and the artifacts. One directory belongs to one execution:
//
//	<id>/meta.json      what it is looked up by
//	<id>/request.json   what was asked, without secrets
//	<id>/policy.json    what it might do at most
//	<id>/events.ndjson  the events, one a line, the last one the result
//	<id>/result.json    the result
//	<id>/github.json    until then, what the run can do on GitHub
//	<id>/artifacts/     the files that the run declared
//
// In memory is meta.json alone, mostly less than 1 KiB, however long its request
// and result are. Readers follow the file of events, so a slow or absent reader costs no
// memory either. What was finished survives a restart; what was not is given the
// result that its owner has for such runs. A Store must have its directory for
// itself.
package store

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"slices"
	"sync"
	"time"

	"sallyport/executor/api"
)

// The names inside an execution's directory.
const (
	metaFile     = "meta.json"
	requestFile  = "request.json"
	eventsFile   = "events.ndjson"
	resultFile   = "result.json"
	policyFile   = "policy.json"
	githubFile   = "github.json"
	draftFile    = "audit.json"
	artifactsDir = "artifacts"
)

// Meta is what an execution is looked up by, known when it is accepted. Whoever makes
// one bounds its texts.
type Meta struct {
	ID       string    `json:"executionId"`
	Accepted time.Time `json:"accepted"`
	// Tenant is whose execution it is; the operator's has no name.
	Tenant string `json:"tenant,omitempty"`
	// TaskID and Model are the request's.
	TaskID string `json:"taskId,omitempty"`
	Model  string `json:"model,omitempty"`
	// Workflow is the request's; the zero one where it named none.
	Workflow api.Workflow `json:"workflow,omitzero"`
	// Agent and Policy are those that it got, be it without naming one.
	Agent  string `json:"agent"`
	Policy string `json:"policy"`
	// Key is the caller's Idempotency-Key, empty for none, and Body the digest of
	// what was asked under it.
	Key  string `json:"idempotencyKey,omitempty"`
	Body string `json:"bodyDigest,omitempty"`
	// Dir is the directory that the caller named as the workspace, without symbolic
	// links, empty for none, and UID the user as whom the agent writes there.
	Dir string `json:"cwd,omitempty"`
	UID int    `json:"uid,omitempty"`
	// Backend isolates the sandbox. On disk it is left out where it is firstBackend.
	Backend string `json:"backend,omitempty"`
}

// firstBackend is what records had before they named one.
const firstBackend = "docker"

// A Store holds executions. It is safe for concurrent use.
type Store struct {
	root *os.Root
	log  *slog.Logger

	mu      sync.Mutex // guards entries
	entries map[string]*Entry
}

// Open opens the store in dir, which it makes if need be. Executions that have
// no result, because their executor died, get the one that lost returns.
// Directories that are no readable execution are left alone, with a warning.
func Open(dir string, log *slog.Logger, lost func(Remains) api.Result) (*Store, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the store: %w", err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("open the store: %w", err)
	}
	s := &Store{root: root, log: log, entries: map[string]*Entry{}}
	dirs, err := fs.ReadDir(root.FS(), ".")
	if err != nil {
		root.Close()
		return nil, fmt.Errorf("read the store %s: %w", dir, err)
	}
	for _, d := range dirs {
		var e *Entry
		meta, err := s.readMeta(d.Name())
		if err == nil {
			e, err = reopen(root, meta, log, lost)
		}
		if err != nil {
			log.Warn("left out an unreadable execution", "run", d.Name(), "error", err)
			continue
		}
		s.entries[e.Meta.ID] = e
	}
	return s, nil
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
	return old.Meta, newEntry(s.root, old.Meta).writeMeta()
}

// Create makes the record of a new execution; request is a JSON document, effective its
// policy, nil for none.
func (s *Store) Create(meta Meta, request []byte, effective *api.EffectivePolicy) (*Entry, error) {
	e, err := s.create(meta, request, effective)
	if err != nil {
		return nil, fmt.Errorf("record execution %s: %w", meta.ID, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.entries[meta.ID] = e
	return e, nil
}

func (s *Store) create(meta Meta, request []byte, effective *api.EffectivePolicy) (*Entry, error) {
	if err := s.root.Mkdir(meta.ID, 0o700); err != nil {
		return nil, err
	}
	e := newEntry(s.root, meta)
	err := e.writeFile(requestFile, request, false)
	if err == nil {
		err = e.writePolicy(effective)
	}
	if err == nil {
		err = e.writeMeta()
	}
	if err == nil {
		e.file, err = s.root.OpenFile(e.path(eventsFile), os.O_CREATE|os.O_EXCL|os.O_WRONLY|os.O_APPEND, 0o600)
	}
	if err != nil {
		s.root.RemoveAll(meta.ID) // the first error is the one that counts
		return nil, err
	}
	return e, nil
}

// Get returns an execution's record.
func (s *Store) Get(id string) (*Entry, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e, ok := s.entries[id]
	return e, ok
}

// All returns every record, the oldest first.
func (s *Store) All() []*Entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]*Entry, 0, len(s.entries))
	for _, e := range s.entries {
		all = append(all, e)
	}
	slices.SortFunc(all, func(a, b *Entry) int {
		if c := a.Meta.Accepted.Compare(b.Meta.Accepted); c != 0 {
			return c
		}
		if a.Meta.ID < b.Meta.ID {
			return -1
		}
		return 1
	})
	return all
}

// Sweep removes finished executions: all but so many of the newest, and those that
// were accepted before the given time. It returns what it removed.
func (s *Store) Sweep(newest int, before time.Time) ([]Meta, error) {
	var finished []*Entry
	for _, e := range s.All() {
		if e.Finished() {
			finished = append(finished, e)
		}
	}
	var removed []Meta
	var errs []error
	for i, e := range finished {
		if i >= len(finished)-newest && !e.Meta.Accepted.Before(before) {
			continue
		}
		if err := s.root.RemoveAll(e.Meta.ID); err != nil {
			errs = append(errs, fmt.Errorf("remove execution %s: %w", e.Meta.ID, err))
			continue
		}
		s.mu.Lock()
		delete(s.entries, e.Meta.ID)
		s.mu.Unlock()
		removed = append(removed, e.Meta)
	}
	return removed, errors.Join(errs...)
}

// Close closes the store. Readers that are under way end on their own.
func (s *Store) Close() error { return s.root.Close() }
