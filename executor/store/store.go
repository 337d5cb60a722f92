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
// They are looked up in the database, which has a row for each, and can be made again from
// the directories. In memory are those alone that have no result yet. Readers
// follow the file of events, so a slow or absent reader costs no memory either. What was
// finished survives a restart; what was not is given the result that its owner has for
// such runs. A Store must have its directory and its tables for itself.
package store

import (
	"cmp"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"maps"
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
	rows rows
	log  *slog.Logger
	lost func(Remains) api.Result

	sweeping sync.Mutex // held from the count of executions until those above are gone

	mu   sync.Mutex        // guards live
	live map[string]*Entry // those of whose end the rows do not know
}

// Open opens the store in dir, which it makes if need be, with its tables in db. Executions
// that have no result, because their executor died, get the one that lost returns.
// Directories that are no readable execution are left alone, with a warning.
func Open(db *sql.DB, dir string, log *slog.Logger, lost func(Remains) api.Result) (*Store, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the store: %w", err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("open the store: %w", err)
	}
	s := &Store{root: root, rows: rows{db}, log: log, lost: lost, live: map[string]*Entry{}}
	if err := s.begin(); err != nil {
		root.Close()
		return nil, fmt.Errorf("open the store %s: %w", dir, err)
	}
	return s, nil
}

// Create makes the record of a new execution; request is a JSON document, effective its
// policy, nil for none. Where it is the first of a workflow instance, first is what that
// keeps; if another was the first, the error is ErrBegun. Once Create returns, neither the
// execution nor what its key stands for is lost.
func (s *Store) Create(meta Meta, request []byte, effective *api.EffectivePolicy, first *Instance) (*Entry, error) {
	meta.Backend = cmp.Or(meta.Backend, firstBackend)
	e, err := s.create(meta, request, effective, first)
	if err != nil {
		return nil, fmt.Errorf("record execution %s: %w", meta.ID, err)
	}
	return e, nil
}

func (s *Store) create(meta Meta, request []byte, effective *api.EffectivePolicy, first *Instance) (*Entry, error) {
	if err := s.root.Mkdir(meta.ID, 0o700); err != nil {
		return nil, err
	}
	e := newEntry(s, meta)
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
	if err == nil {
		s.keep(e) // first, so that nobody finds a key without its execution
		err = s.rows.accept(meta, first)
	}
	if err != nil {
		s.release(e)
		e.file.Close()
		s.root.RemoveAll(meta.ID) // the first error is the one that counts
		return nil, err
	}
	return e, nil
}

func (s *Store) keep(e *Entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.live[e.Meta.ID] = e
}

func (s *Store) release(e *Entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.live, e.Meta.ID)
}

// Get returns an execution's record, nil where there is none.
func (s *Store) Get(id string) (*Entry, error) {
	s.mu.Lock()
	e := s.live[id]
	s.mu.Unlock()
	if e != nil {
		return e, nil
	}
	meta, ok, err := s.rows.finished(id)
	if err != nil || !ok {
		return nil, err
	}
	e = newEntry(s, meta)
	close(e.done)
	if info, err := s.root.Stat(e.path(eventsFile)); err == nil {
		e.size = info.Size()
	}
	return e, nil
}

// Key returns the execution that an Idempotency-Key of a tenant's stands for and the digest
// of what was asked under it; "" where it stands for nothing. A key lives for a day, be
// its execution kept as long or not.
func (s *Store) Key(tenant, key string) (id, body string, err error) {
	return s.rows.key(tenant, key, time.Now())
}

// Used is how many bytes a tenant's finished executions take on disk.
func (s *Store) Used(tenant string) (int64, error) { return s.rows.used(tenant) }

// Spent is what the models of a tenant's executions that have ended since then have cost,
// in US dollars, be they still kept or not. It is known for 31 days.
func (s *Store) Spent(tenant string, since time.Time) (float64, error) {
	return s.rows.spent(tenant, since)
}

// A Listing is what is wanted of a tenant's executions, or of all tenants'. An empty string
// wants all, but for Tenant.
type Listing struct {
	Tenant                       string
	AllTenants                   bool
	State, TaskID, Policy, Agent string
	// Before is the identifier of the execution before which the list begins. The
	// identifiers are ordered by time, so it need not exist any more.
	Before string
	Limit  int
}

func (l *Listing) wants(m *Meta, state string) bool {
	matches := func(want, is string) bool { return want == "" || want == is }
	return (l.AllTenants || m.Tenant == l.Tenant) && (l.Before == "" || m.ID < l.Before) && matches(l.TaskID, m.TaskID) &&
		matches(l.Policy, m.Policy) && matches(l.Agent, m.Agent) && matches(l.State, state)
}

// List picks executions, the newest first, and says whether there are more behind them. It
// opens no files but those of results that could not be recorded.
func (s *Store) List(l Listing) (page []api.ExecutionSummary, more bool, err error) {
	s.mu.Lock()
	live := slices.Collect(maps.Values(s.live)) // before the rows, which have it if it ends now
	s.mu.Unlock()
	if l.State == "" || l.State == api.StateFinished {
		if page, err = s.rows.list(l, l.Limit+1); err != nil {
			return nil, false, err
		}
	}
	listed := map[string]bool{}
	for _, x := range page {
		listed[x.ID] = true
	}
	for _, e := range live {
		if state := e.State(); !listed[e.Meta.ID] && l.wants(&e.Meta, state) {
			page = append(page, e.summary(state))
		}
	}
	slices.SortFunc(page, func(a, b api.ExecutionSummary) int { return cmp.Compare(b.ID, a.ID) })
	return page[:min(len(page), l.Limit)], len(page) > l.Limit, nil
}

// Sweep removes finished executions: all but so many of the newest of each tenant, and
// those that were accepted before the given time; keys and costs as well, once they are too old. It
// returns how many executions it has removed.
func (s *Store) Sweep(newest int, before time.Time) (int, error) {
	s.sweeping.Lock()
	defer s.sweeping.Unlock()
	old, err := s.rows.old(newest, before)
	var removed []string
	errs := []error{err}
	for _, id := range old {
		if err := s.root.RemoveAll(id); err != nil {
			errs = append(errs, fmt.Errorf("remove execution %s: %w", id, err))
			continue
		}
		removed = append(removed, id)
	}
	errs = append(errs, s.rows.drop(removed), s.rows.expire(time.Now()))
	return len(removed), errors.Join(errs...)
}

// Close closes the store. Readers that are under way end on their own.
func (s *Store) Close() error { return s.root.Close() }
