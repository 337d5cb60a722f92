package store

import (
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"sallyport/executor/api"
)

// keyLife is how long an Idempotency-Key stands for its execution, and spendingLife how
// long it is known what one has cost.
const (
	keyLife      = 24 * time.Hour
	spendingLife = 31 * 24 * time.Hour
)

// rows are what the database knows of executions, of their keys and of their cost.
type rows struct{ db *sql.DB }

// change makes changes that happen together or not at all.
func (r rows) change(f func(*sql.Tx) error) error {
	tx, err := r.db.Begin()
	if err != nil {
		return err
	}
	if err := f(tx); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}

// accept adds a new execution, its workflow instance and its key, which must not stand for
// another one.
func (r rows) accept(m Meta, first *Instance) error {
	return r.change(func(tx *sql.Tx) error {
		if err := add(tx, m); err != nil {
			return err
		}
		if m.Workflow != (api.Workflow{}) {
			if err := addInstance(tx, m, first); err != nil {
				return err
			}
		}
		if took, err := addKey(tx, m); err != nil || took {
			return err
		}
		return errors.New("its Idempotency-Key stands for another execution")
	})
}

func add(tx *sql.Tx, m Meta) error {
	text, err := json.Marshal(m)
	if err == nil {
		_, err = tx.Exec("INSERT INTO execution (id, tenant, accepted, task_id, agent, policy, meta) VALUES (?, ?, ?, ?, ?, ?, ?)",
			m.ID, m.Tenant, m.Accepted.UnixNano(), m.TaskID, m.Agent, m.Policy, string(text))
	}
	return err
}

// addKey adds an execution's key, if it has one, unless it stands for another execution.
func addKey(tx *sql.Tx, m Meta) (took bool, err error) {
	if m.Key == "" {
		return true, nil
	}
	res, err := tx.Exec(`INSERT INTO idempotency_key (tenant, key, execution, body, expires) VALUES (?1, ?2, ?3, ?4, ?5)
		ON CONFLICT (tenant, key) DO UPDATE SET execution = ?3, body = ?4, expires = ?5 WHERE expires <= ?6`,
		m.Tenant, m.Key, m.ID, m.Body, m.Accepted.Add(keyLife).UnixNano(), time.Now().UnixNano())
	if err != nil {
		return false, err
	}
	n, err := res.RowsAffected()
	return n > 0, err
}

// An end is what the rows say of an execution once it has finished.
type end struct {
	at      time.Time
	outcome api.Outcome
	bytes   int64 // on disk
}

func (r rows) finish(m Meta, e end) error {
	return r.change(func(tx *sql.Tx) error { return finish(tx, m, e) })
}

func finish(tx *sql.Tx, m Meta, e end) error {
	text, err := json.Marshal(e.outcome)
	if err == nil {
		_, err = tx.Exec("UPDATE execution SET finished = 1, outcome = ?, bytes = ? WHERE id = ?", string(text), e.bytes, m.ID)
	}
	if err == nil && e.outcome.CostUSD > 0 {
		_, err = tx.Exec("INSERT OR REPLACE INTO spending (execution, tenant, ended, cost_usd) VALUES (?, ?, ?, ?)",
			m.ID, m.Tenant, e.at.UnixNano(), e.outcome.CostUSD)
	}
	return err
}

// finished looks a finished execution up.
func (r rows) finished(id string) (m Meta, ok bool, err error) {
	var text string
	err = r.db.QueryRow("SELECT meta FROM execution WHERE id = ? AND finished = 1", id).Scan(&text)
	if errors.Is(err, sql.ErrNoRows) {
		return m, false, nil
	}
	if err == nil {
		err = json.Unmarshal([]byte(text), &m)
	}
	if err != nil {
		return m, false, fmt.Errorf("look up execution %s: %w", id, err)
	}
	return m, true, nil
}

func (r rows) key(tenant, key string, now time.Time) (id, body string, err error) {
	err = r.db.QueryRow("SELECT execution, body FROM idempotency_key WHERE tenant = ? AND key = ? AND expires > ?", tenant, key, now.UnixNano()).Scan(&id, &body)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return "", "", fmt.Errorf("look up an Idempotency-Key: %w", err)
	}
	return id, body, nil
}

func (r rows) used(tenant string) (n int64, err error) {
	err = r.db.QueryRow("SELECT coalesce(sum(bytes), 0) FROM execution INDEXED BY execution_listed WHERE tenant = ?", tenant).Scan(&n)
	return n, err
}

func (r rows) spent(tenant string, since time.Time) (usd float64, err error) {
	err = r.db.QueryRow("SELECT coalesce(sum(cost_usd), 0) FROM spending WHERE tenant = ? AND ended >= ?", tenant, since.UnixNano()).Scan(&usd)
	return usd, err
}

// list lists finished executions, the newest first.
func (r rows) list(l Listing, limit int) (page []api.ExecutionSummary, err error) {
	// A task has few executions; of all others the newest are wanted.
	index, where, args := "INDEXED BY execution_listed", []string{"finished = 1", "tenant = ?"}, []any{l.Tenant}
	switch {
	case l.AllTenants:
		index, where, args = "NOT INDEXED", where[:1], nil
	case l.TaskID != "":
		index = "INDEXED BY execution_of_task"
	}
	for _, f := range []struct{ condition, value string }{
		{"id < ?", l.Before}, {"task_id = ?", l.TaskID}, {"policy = ?", l.Policy}, {"agent = ?", l.Agent},
	} {
		if f.value != "" {
			where, args = append(where, f.condition), append(args, f.value)
		}
	}
	found, err := r.db.Query("SELECT meta, outcome FROM execution "+index+" WHERE "+strings.Join(where, " AND ")+" ORDER BY id DESC LIMIT ?", append(args, limit)...)
	if err != nil {
		return nil, fmt.Errorf("list executions: %w", err)
	}
	defer found.Close()
	for found.Next() {
		var meta, outcome string
		var m Meta
		x := api.ExecutionSummary{Outcome: new(api.Outcome)}
		err := found.Scan(&meta, &outcome)
		if err = errors.Join(err, json.Unmarshal([]byte(meta), &m), json.Unmarshal([]byte(outcome), x.Outcome)); err != nil {
			return nil, fmt.Errorf("list executions: %w", err)
		}
		page = append(page, m.summary(api.StateFinished, x.Outcome))
	}
	return page, found.Err()
}

func (m *Meta) summary(state string, o *api.Outcome) api.ExecutionSummary {
	return api.ExecutionSummary{
		ID: m.ID, State: state, AcceptedAt: m.Accepted.UTC(), TaskID: m.TaskID, Agent: m.Agent, Policy: m.Policy, Model: m.Model, Outcome: o,
	}
}

// old are the finished executions that are kept no longer: those of before, and all but so
// many of the newest of each tenant, so that none makes room at the cost of others.
func (r rows) old(newest int, before time.Time) ([]string, error) {
	old, err := r.ids("SELECT id FROM execution WHERE finished = 1 AND accepted < ? ORDER BY accepted, id", before.UnixNano())
	if err != nil {
		return nil, err
	}
	crowds, err := r.crowds(newest)
	if err != nil {
		return nil, err
	}
	for tenant, tooMany := range crowds {
		oldest, err := r.ids("SELECT id FROM execution INDEXED BY execution_listed WHERE finished = 1 AND tenant = ? ORDER BY id LIMIT ?", tenant, max(tooMany, 0))
		if err != nil {
			return nil, err
		}
		old = append(old, oldest...)
	}
	slices.Sort(old)
	return slices.Compact(old), nil
}

// crowds say how many finished executions tenants have above so many. Whoever asks has given
// the connection back by then: to wait for a second one with the first in hand is to wait
// for others who do the same.
func (r rows) crowds(newest int) (map[string]int, error) {
	// Those under way are counted for themselves: the index that has all tenants does not
	// say which they are.
	found, err := r.db.Query(`SELECT tenant, count(*) - ?1 - (SELECT count(*) FROM execution u WHERE u.finished = 0 AND u.tenant = e.tenant)
		FROM execution e INDEXED BY execution_listed GROUP BY tenant HAVING count(*) > ?1`, newest)
	if err != nil {
		return nil, err
	}
	defer found.Close()
	crowds := map[string]int{}
	for found.Next() {
		var tenant string
		var tooMany int
		if err := found.Scan(&tenant, &tooMany); err != nil {
			return nil, err
		}
		crowds[tenant] = tooMany
	}
	return crowds, found.Err()
}

// ids are those that a question finds.
func (r rows) ids(question string, args ...any) (ids []string, err error) {
	found, err := r.db.Query(question, args...)
	if err != nil {
		return nil, err
	}
	defer found.Close()
	for found.Next() {
		var id string
		if err := found.Scan(&id); err != nil {
			return nil, err
		}
		ids = append(ids, id)
	}
	return ids, found.Err()
}

func (r rows) drop(ids []string) error {
	if len(ids) == 0 {
		return nil
	}
	return r.change(func(tx *sql.Tx) error {
		for _, id := range ids {
			if _, err := tx.Exec("DELETE FROM execution WHERE id = ?", id); err != nil {
				return err
			}
		}
		return nil
	})
}

// expire drops keys, costs and workflow instances that nobody asks for any more.
func (r rows) expire(now time.Time) error {
	_, err := r.db.Exec("DELETE FROM idempotency_key WHERE expires <= ?", now.UnixNano())
	_, err2 := r.db.Exec("DELETE FROM spending WHERE ended < ?", now.Add(-spendingLife).UnixNano())
	_, err3 := r.db.Exec("DELETE FROM workflow_instance WHERE last < ?", now.Add(-instanceLife).UnixNano())
	return errors.Join(err, err2, err3)
}
