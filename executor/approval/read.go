package approval

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"iter"
	"time"

	"sallyport/executor/api"
	"sallyport/executor/caller"
)

// A querier is a database or a transaction.
type querier interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// summary selects approvals a with their last step t.
const summary = `SELECT a.id, a.tenant, a.kind, a.name, a.digest, t.state, t.seq, CASE t.state WHEN 'approved' THEN t.tier ELSE '' END
	FROM approval a JOIN approval_transition t ON t.approval = a.id
	AND t.seq = (SELECT max(seq) FROM approval_transition WHERE approval = a.id) `

func scan(row interface{ Scan(...any) error }) (a api.Approval, err error) {
	err = row.Scan(&a.ID, &a.Tenant, &a.Kind, &a.Name, &a.Digest, &a.State, &a.Seq, &a.Tier)
	if errors.Is(err, sql.ErrNoRows) {
		err = ErrUnknown
	}
	return a, err
}

func bySubject(ctx context.Context, in querier, s Subject) (api.Approval, error) {
	return scan(in.QueryRowContext(ctx, summary+"WHERE a.tenant = ? AND a.kind = ? AND a.name = ? AND a.digest = ?", s.Tenant, s.Kind, s.Name, s.Digest))
}

func byID(ctx context.Context, in querier, tenant, id string) (api.Approval, error) {
	return scan(in.QueryRowContext(ctx, summary+"WHERE (? = '"+caller.Everyone+"' OR a.tenant = ?) AND a.id = ?", tenant, tenant, id))
}

// Get returns an approval of a tenant, or of caller.Everyone, with its definition and its history.
func (k *Keeper) Get(ctx context.Context, tenant, id string) (api.Approval, error) {
	a, err := byID(ctx, k.DB, tenant, id)
	if err != nil {
		return a, err
	}
	var definition string
	if err := k.DB.QueryRowContext(ctx, "SELECT definition FROM approval WHERE id = ?", id).Scan(&definition); err != nil {
		return a, fmt.Errorf("read the approval %s: %w", id, err)
	}
	a.Definition = []byte(definition)
	a.History, err = k.steps(ctx, "t.approval = ? AND t.seq > ?", id, 0)
	return a, err
}

// PageSize is how many approvals a list has at most.
const PageSize = 100

// List returns approvals of a tenant, or of caller.Everyone, newest first: those in a state, or with an empty one
// all, and those before the identifier before, if there is one. more says that there are
// others behind them.
func (k *Keeper) List(ctx context.Context, tenant, state, before string) (list []api.Approval, more bool, err error) {
	rows, err := k.DB.QueryContext(ctx, summary+"WHERE (? = '"+caller.Everyone+"' OR a.tenant = ?) "+`AND (? = '' OR t.state = ?) AND (? = '' OR a.id < ?)
		ORDER BY a.id DESC LIMIT ?`, tenant, tenant, state, state, before, before, PageSize+1)
	if err != nil {
		return nil, false, fmt.Errorf("list approvals: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		a, err := scan(rows)
		if err != nil {
			return nil, false, fmt.Errorf("list approvals: %w", err)
		}
		list = append(list, a)
	}
	if len(list) > PageSize {
		list, more = list[:PageSize], true
	}
	return list, more, rows.Err()
}

// steps are up to a page of steps for which a condition holds.
func (k *Keeper) steps(ctx context.Context, where string, args ...any) ([]api.ApprovalEvent, error) {
	rows, err := k.DB.QueryContext(ctx, `SELECT t.seq, t.time, t.state, a.id, a.tenant, a.kind, a.name, a.digest, t.principal, t.principal_tenant, t.comment, t.tier
		FROM approval_transition t JOIN approval a ON a.id = t.approval WHERE `+where+" ORDER BY t.seq LIMIT ?", append(args, PageSize)...)
	if err != nil {
		return nil, fmt.Errorf("read the steps of approvals: %w", err)
	}
	defer rows.Close()
	var list []api.ApprovalEvent
	for rows.Next() {
		var ev api.ApprovalEvent
		var at int64
		err := rows.Scan(&ev.Seq, &at, &ev.Type, &ev.ApprovalID, &ev.Tenant, &ev.Kind, &ev.Name, &ev.Digest, &ev.Principal, &ev.PrincipalTenant, &ev.Comment, &ev.Tier)
		if err != nil {
			return nil, fmt.Errorf("read the steps of approvals: %w", err)
		}
		ev.Time = time.Unix(0, at).UTC()
		list = append(list, ev)
	}
	return list, rows.Err()
}

// Events yields the steps of the approvals of a tenant, or of caller.Everyone, with a number above after, then ends or,
// if follow is set, waits for more until ctx ends.
func (k *Keeper) Events(ctx context.Context, tenant string, after int64, follow bool) iter.Seq2[api.ApprovalEvent, error] {
	return func(yield func(api.ApprovalEvent, error) bool) {
		for {
			changed := k.next()
			list, err := k.steps(ctx, "(? = '"+caller.Everyone+"' OR t.tenant = ?) AND t.seq > ?", tenant, tenant, after)
			if err != nil {
				yield(api.ApprovalEvent{}, err)
				return
			}
			for _, ev := range list {
				if after = ev.Seq; !yield(ev, nil) {
					return
				}
			}
			if len(list) > 0 {
				continue
			}
			if !follow {
				return
			}
			select {
			case <-changed:
			case <-ctx.Done():
				yield(api.ApprovalEvent{}, context.Cause(ctx))
				return
			}
		}
	}
}

// next is closed at the next step.
func (k *Keeper) next() <-chan struct{} {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.changed == nil {
		k.changed = make(chan struct{})
	}
	return k.changed
}

// announce tells those who wait that there is a step.
func (k *Keeper) announce() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.changed != nil {
		close(k.changed)
		k.changed = nil
	}
}

func eventOf(a api.Approval) api.ApprovalEvent {
	return api.ApprovalEvent{ApprovalID: a.ID, Tenant: a.Tenant, Kind: a.Kind, Name: a.Name, Digest: a.Digest}
}
