package store

import (
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"sallyport/executor/api"
)

// instanceLife is how long after its last run a workflow instance is known.
const instanceLife = 365 * 24 * time.Hour

// ErrBegun says that a workflow instance has had its first run already.
var ErrBegun = errors.New("the workflow instance has begun")

// An Instance is what the first run of a workflow instance was given.
type Instance struct {
	api.WorkflowInstance
	// Kept is a JSON document, which its later runs are held to.
	Kept []byte
}

// Instance looks a tenant's workflow instance up, nil where it has not begun.
func (s *Store) Instance(tenant, definition, instance string) (*Instance, error) {
	var began int64
	var effective, kept string
	x := Instance{WorkflowInstance: api.WorkflowInstance{Definition: definition, Instance: instance}}
	err := s.rows.db.QueryRow("SELECT version, execution, began, effective, kept FROM workflow_instance WHERE tenant = ? AND definition = ? AND instance = ?",
		tenant, definition, instance).Scan(&x.Version, &x.Execution, &began, &effective, &kept)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	if err == nil {
		err = json.Unmarshal([]byte(effective), &x.EffectivePolicy)
	}
	if err != nil {
		return nil, fmt.Errorf("look up the workflow instance %q of %q: %w", instance, definition, err)
	}
	x.Began, x.Kept = time.Unix(0, began).UTC(), []byte(kept)
	return &x, nil
}

// addInstance adds what the first run of an instance was given, or notes a later run.
func addInstance(tx *sql.Tx, m Meta, first *Instance) error {
	w := m.Workflow
	if first == nil {
		_, err := tx.Exec("UPDATE workflow_instance SET last = ? WHERE tenant = ? AND definition = ? AND instance = ?",
			m.Accepted.UnixNano(), m.Tenant, w.Definition, w.Instance)
		return err
	}
	effective, err := json.Marshal(first.EffectivePolicy)
	if err != nil {
		return err
	}
	res, err := tx.Exec(`INSERT INTO workflow_instance (tenant, definition, instance, version, execution, began, last, effective, kept)
		VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?6, ?7, ?8) ON CONFLICT DO NOTHING`,
		m.Tenant, w.Definition, w.Instance, w.Version, m.ID, m.Accepted.UnixNano(), string(effective), string(first.Kept))
	if err != nil {
		return err
	}
	if n, err := res.RowsAffected(); err != nil || n > 0 {
		return err
	}
	return ErrBegun
}
