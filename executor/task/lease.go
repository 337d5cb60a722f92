package task

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"sallyport/executor/api"
	"sallyport/executor/backend"
	"sallyport/executor/place"
	"sallyport/firewall/account"
	"sallyport/gate/control"
)

// A Gate is the gate's control API as a task needs it; *control.Client is one.
type Gate interface {
	Lease(ctx context.Context, id string, l control.Lease) (control.Cell, error)
	Release(ctx context.Context, id string) (control.Cell, error)
	Decisions(ctx context.Context, run string, follow bool) iter.Seq2[account.Record, error]
}

const (
	leaseTimeout = 10 * time.Second
	// maxCells is how many cells a task tries where the gate cannot listen in one.
	maxCells = 3
)

// A lease is the cell of a place with the task's policy in force, and its decisions as
// they come.
type lease struct {
	gate      Gate
	place     *place.Place
	cell      backend.Cell
	decisions *decisions
	rec       *recorder
}

// A wanted policy is one that a lease is for.
type wanted struct {
	policy string
	digest string // empty for whichever it has
}

// errChanged is a policy that is not what it was.
var errChanged = errors.New("the policy has changed since the request was judged")

// openLease takes a cell for the place and has the gate open it for the policy.
func openLease(ctx context.Context, gate Gate, p *place.Place, policy wanted, rec *recorder) (*lease, *api.Error) {
	for try := 1; ; try++ {
		cell, err := p.TakeCell(ctx)
		if err != nil {
			return nil, place.Cause(ctx, place.StartFailed("get a cell", err))
		}
		l := &lease{gate: gate, place: p, cell: cell, rec: rec}
		if err = l.open(ctx, policy); err == nil {
			return l, nil
		}
		l.abandon()
		if try < maxCells && ctx.Err() == nil && anotherCellMayDo(err) {
			rec.log.Warn("the gate cannot use a cell; another is taken", "cell", cell.ID, "error", err)
			continue
		}
		return nil, place.Cause(ctx, leaseFailed(err))
	}
}

// open leases the cell and begins to follow the task's decisions.
func (l *lease) open(ctx context.Context, w wanted) error {
	ctx, cancel := context.WithTimeout(ctx, leaseTimeout)
	defer cancel()
	run := l.rec.entry.Meta.ID
	leased, err := l.gate.Lease(ctx, l.cell.ID, control.Lease{
		Run:     run,
		Policy:  w.policy,
		Address: l.cell.Gate,
		Prefix:  l.cell.Prefix,
		Pool:    l.cell.Pool,
	})
	if err != nil {
		return err
	}
	if w.digest != "" && leased.Digest != w.digest {
		return errChanged
	}
	l.decisions = follow(l.gate, run, leased, l.rec)
	return nil
}

// abandon has a cell taken apart whose lease failed. The lease is ended, too: it may
// have come about although the call failed.
func (l *lease) abandon() {
	ctx, cancel := context.WithTimeout(context.Background(), leaseTimeout)
	defer cancel()
	l.gate.Release(ctx, l.cell.ID) // nothing to do about an error: the cell goes away
	l.place.GiveCell(false)
}

// anotherCellMayDo reports whether the gate's refusal is about the cell.
func anotherCellMayDo(err error) bool {
	var refused *control.Error
	return errors.As(err, &refused) && (refused.Code == control.CodeListen || refused.Code == control.CodeLeased)
}

// leaseFailed says what a failed lease means for the run.
func leaseFailed(err error) *api.Error {
	var refused *control.Error
	switch {
	case errors.Is(err, errChanged):
		return &api.Error{Code: api.CodePolicyDenied, Message: "what was approved is not what would run: " + err.Error(), Retryable: true}
	case !errors.As(err, &refused):
		return gateUnavailable(fmt.Sprintf("the gate could not be reached: %v", err))
	case refused.Code == control.CodeStopping:
		return gateUnavailable("the gate is about to end")
	case refused.Code == control.CodeNoPolicy:
		return &api.Error{Code: api.CodePolicyDenied, Message: "the gate refused the policy: " + refused.Error()}
	}
	return place.StartFailed("lease a cell", err)
}

func gateUnavailable(message string) *api.Error {
	return &api.Error{Code: api.CodeGateUnavailable, Message: message, Retryable: true}
}

// end ends the lease, gives the cell back and returns the final receipt.
func (l *lease) end() account.Receipt {
	ctx, cancel := context.WithTimeout(context.Background(), leaseTimeout)
	defer cancel()
	l.decisions.settle()
	final, err := l.gate.Release(ctx, l.cell.ID)
	receipt := final.Receipt
	if err == nil {
		l.decisions.await(time.Second)
		for i := range receipt.Hosts { // an agent may have put a secret into a name
			receipt.Hosts[i].Host = l.rec.redactor.String(receipt.Hosts[i].Host)
		}
	} else {
		l.rec.log.Warn("the lease could not be ended", "cell", l.cell.ID, "error", err)
		receipt = l.decisions.receipt()
	}
	l.decisions.stop()
	l.place.GiveCell(err == nil && !l.decisions.lost())
	return receipt
}
