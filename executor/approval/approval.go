// Package approval keeps who approved what: a subject (a profile, a task, a worker) of a
// tenant, in one very version, which is the digest of all that decides what it may do. A
// version that was never asked for is pending; so is one that differs by a byte. Every step
// is a row that is never changed, and the last one is the state. A decision is signed first,
// and in force only then.
//
//	k := &approval.Keeper{DB: db, Sign: log.AppendDecision, Now: time.Now}
//	found, err := k.Require(ctx, "alice", redact, subjects...) // makes what is pending
//	a, err := k.Decide(ctx, by, id, api.ApprovalApproved, decision)
package approval

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/oklog/ulid/v2"

	"sallyport/executor/api"
	"sallyport/executor/caller"
)

// A Keeper keeps approvals in a database. It is safe for concurrent use. All fields are
// required; no other process may write to its tables.
type Keeper struct {
	DB *sql.DB
	// Sign writes a decision down for ever, before it is in force.
	Sign func(api.ApprovalEvent) error
	Now  func() time.Time

	mu      sync.Mutex    // guards changed
	changed chan struct{} // closed at the next step of any approval
}

// A Subject is what is to be approved; see NewSubject.
type Subject struct {
	Tenant, Kind, Name string
	Digest             string
	definition         []byte // JSON
}

// NewSubject is a subject whose version is that of its definition, which becomes JSON.
func NewSubject(tenant, kind, name string, definition any) (Subject, error) {
	text, err := json.Marshal(definition)
	if err != nil {
		return Subject{}, fmt.Errorf("define the %s %s: %w", kind, name, err)
	}
	sum := sha256.Sum256(text)
	if len(text) > maxDefinition {
		return Subject{}, ErrTooLong
	}
	return Subject{tenant, kind, name, "sha256:" + hex.EncodeToString(sum[:]), text}, nil
}

// MaxPending is how many approvals of a tenant may be pending.
const MaxPending = 100

// maxDefinition is the longest definition, in bytes.
const maxDefinition = 2 << 20

// The errors that callers tell apart.
var (
	ErrUnknown  = errors.New("there is no such approval")
	ErrTooLong  = fmt.Errorf("what requires an approval is defined in more than %d bytes: nobody can review that", maxDefinition)
	ErrTooMany  = errors.New("too many approvals are pending")
	ErrMoved    = errors.New("it has moved on since it was read: read it again, and give the seq that it has now")
	ErrOwn      = errors.New("whoever asked for it does not approve it: another principal does")
	ErrNoChange = errors.New("that is no step from its state")
)

// Require returns the approvals of subjects, in their order. Those that are not there yet
// become pending, asked for by a principal of the subjects' tenant; redact takes secrets out
// of a definition that is kept.
func (k *Keeper) Require(ctx context.Context, principal string, redact func([]byte) ([]byte, error), subjects ...Subject) ([]api.Approval, error) {
	found, all, err := k.look(ctx, subjects)
	if err != nil || all {
		return found, err
	}
	tx, err := k.DB.BeginTx(ctx, nil)
	if err != nil {
		return nil, fmt.Errorf("ask for an approval: %w", err)
	}
	defer tx.Rollback()
	for i, s := range subjects {
		if found[i].ID == "" {
			if s.definition, err = redact(s.definition); err != nil {
				return nil, fmt.Errorf("take the secrets out of the %s %s: %w", s.Kind, s.Name, err)
			}
		}
		if found[i], err = k.require(ctx, tx, principal, s); err != nil {
			return nil, fmt.Errorf("ask for an approval of the %s %s: %w", s.Kind, s.Name, err)
		}
	}
	if err := tx.Commit(); err != nil {
		return nil, fmt.Errorf("ask for an approval: %w", err)
	}
	k.announce()
	return found, nil
}

// look reports whether all subjects are approved, without writing anything.
func (k *Keeper) look(ctx context.Context, subjects []Subject) (found []api.Approval, all bool, err error) {
	all = true
	for _, s := range subjects {
		a, err := bySubject(ctx, k.DB, s)
		if err != nil && !errors.Is(err, ErrUnknown) {
			return nil, false, fmt.Errorf("look up an approval: %w", err)
		}
		all = all && a.State == api.ApprovalApproved
		found = append(found, a)
	}
	return found, all, nil
}

func (k *Keeper) require(ctx context.Context, tx *sql.Tx, principal string, s Subject) (api.Approval, error) {
	a, err := bySubject(ctx, tx, s)
	if errors.Is(err, ErrUnknown) {
		a, err = k.make(ctx, tx, principal, s)
	}
	if err != nil || a.State == api.ApprovalApproved {
		return a, err
	}
	_, err = tx.ExecContext(ctx, "INSERT OR IGNORE INTO approval_asker (approval, principal) VALUES (?, ?)", a.ID, principal)
	return a, err
}

// make makes a pending approval, and has it announced.
func (k *Keeper) make(ctx context.Context, tx *sql.Tx, principal string, s Subject) (api.Approval, error) {
	var pending int
	err := tx.QueryRowContext(ctx, `SELECT count(*) FROM approval a WHERE a.tenant = ? AND (SELECT t.state FROM approval_transition t
		WHERE t.approval = a.id ORDER BY t.seq DESC LIMIT 1) = 'pending'`, s.Tenant).Scan(&pending)
	if err == nil && pending >= MaxPending {
		err = ErrTooMany
	}
	now := k.Now()
	a := api.Approval{Tenant: s.Tenant, Kind: s.Kind, Name: s.Name, Digest: s.Digest, State: api.ApprovalPending}
	if err == nil {
		a.ID = strings.ToLower(ulid.MustNew(ulid.Timestamp(now), rand.Reader).String())
		_, err = tx.ExecContext(ctx, "INSERT INTO approval (id, tenant, kind, name, digest, definition) VALUES (?, ?, ?, ?, ?, ?)",
			a.ID, a.Tenant, a.Kind, a.Name, a.Digest, string(s.definition))
	}
	if err == nil {
		a.Seq, err = step(ctx, tx, a, api.ApprovalEvent{Type: a.State, Time: now, Principal: principal, PrincipalTenant: s.Tenant})
	}
	if err == nil {
		_, err = tx.ExecContext(ctx, "INSERT INTO approval_delivery (seq, due) VALUES (?, ?)", a.Seq, now.UnixNano())
	}
	return a, err
}

// step writes down what became of an approval, and returns its number.
func step(ctx context.Context, tx *sql.Tx, a api.Approval, ev api.ApprovalEvent) (int64, error) {
	res, err := tx.ExecContext(ctx, `INSERT INTO approval_transition (approval, tenant, state, principal, principal_tenant, time, comment, tier)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?)`, a.ID, a.Tenant, ev.Type, ev.Principal, ev.PrincipalTenant, ev.Time.UnixNano(), ev.Comment, ev.Tier)
	if err != nil {
		return 0, err
	}
	return res.LastInsertId()
}

// froms are the states from which each state is reached by a decision.
var froms = map[string][]string{
	api.ApprovalApproved:  {api.ApprovalPending, api.ApprovalRefused, api.ApprovalWithdrawn},
	api.ApprovalRefused:   {api.ApprovalPending},
	api.ApprovalWithdrawn: {api.ApprovalPending, api.ApprovalApproved},
}

// Decide takes an approval of the tenant that by is at work for to a state. What it decides about is the state that
// d.Seq is of: a decision that was made before, or was made of another one, is ErrMoved.
func (k *Keeper) Decide(ctx context.Context, by caller.Caller, id, to string, d api.ApprovalDecision) (api.Approval, error) {
	tx, err := k.DB.BeginTx(ctx, nil)
	if err != nil {
		return api.Approval{}, fmt.Errorf("decide on an approval: %w", err)
	}
	defer tx.Rollback()
	a, err := byID(ctx, tx, by.Tenant, id)
	if err == nil {
		err = k.may(ctx, tx, a, by, to, d.Seq)
	}
	if err != nil {
		return a, err
	}
	ev := eventOf(a)
	ev.Type, ev.Time, ev.Principal, ev.PrincipalTenant, ev.Comment, ev.Tier = to, k.Now().UTC(), by.Principal, by.Home(), d.Comment, d.Tier
	ev.Seq, err = step(ctx, tx, a, ev)
	if err == nil {
		_, err = tx.ExecContext(ctx, "DELETE FROM approval_delivery WHERE seq IN (SELECT seq FROM approval_transition WHERE approval = ?)", a.ID)
	}
	if err == nil {
		err = k.Sign(ev)
	}
	if err == nil {
		err = tx.Commit()
	}
	if err != nil {
		return a, fmt.Errorf("decide on the approval %s: %w", a.ID, err)
	}
	k.announce()
	return k.Get(ctx, a.Tenant, id)
}

// may says why a decision cannot be made, or nil.
func (k *Keeper) may(ctx context.Context, tx *sql.Tx, a api.Approval, by caller.Caller, to string, seq int64) error {
	if a.Seq != seq {
		return ErrMoved
	}
	if !slices.Contains(froms[to], a.State) {
		return fmt.Errorf("%s from %s: %w", to, a.State, ErrNoChange)
	}
	if to != api.ApprovalApproved || by.Alone() || by.Home() != a.Tenant {
		return nil
	}
	var asked int
	err := tx.QueryRowContext(ctx, "SELECT count(*) FROM approval_asker WHERE approval = ? AND principal = ?", a.ID, by.Principal).Scan(&asked)
	if err == nil && asked > 0 {
		err = ErrOwn
	}
	return err
}

// Standing says which of the approvals is approved no longer, or nil.
func (k *Keeper) Standing(ctx context.Context, refs []api.ApprovalRef) error {
	for _, ref := range refs {
		var state string
		err := k.DB.QueryRowContext(ctx, "SELECT state FROM approval_transition WHERE approval = ? ORDER BY seq DESC LIMIT 1", ref.ID).Scan(&state)
		if err != nil {
			return fmt.Errorf("look up the approval %s: %w", ref.ID, err)
		}
		if state != api.ApprovalApproved {
			return fmt.Errorf("the approval %s of the %s %s is %s", ref.ID, ref.Kind, ref.Name, state)
		}
	}
	return nil
}
