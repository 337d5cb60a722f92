package run

import (
	"context"
	"errors"
	"fmt"
	"time"

	"sallyport/executor/api"
	"sallyport/executor/backend"
	"sallyport/gate/control"
)

// maxCells is how many cells a run tries where the gate cannot listen in one.
const maxCells = 3

// A lease is a cell with the run's policy in force, followed by us.
type lease struct {
	cell   backend.Cell
	digest string
	follow *follower
	spoilt bool // something about the cell is wrong: it must not be used again
}

// lease takes a cell and has the gate open it for the run's policy.
func (x *execution) lease(ctx context.Context) (*lease, *api.Error) {
	for try := 1; ; try++ {
		actx, cancel := context.WithTimeout(ctx, acquireTimeout)
		cell, err := x.Cells.Acquire(actx)
		cancel()
		if err != nil {
			return nil, x.cause(ctx, startFailed("get a cell", err))
		}
		l, err := x.open(ctx, cell)
		if err == nil {
			return l, nil
		}
		x.abandon(cell)
		if try < maxCells && ctx.Err() == nil && anotherCellMayDo(err) {
			x.log.Warn("the gate cannot use a cell; another is taken", "cell", cell.ID, "error", err)
			continue
		}
		return nil, x.cause(ctx, leaseFailed(err))
	}
}

// open leases one cell and begins to follow the run's decisions.
func (x *execution) open(ctx context.Context, cell backend.Cell) (*lease, error) {
	lctx, cancel := context.WithTimeout(ctx, leaseTimeout)
	defer cancel()
	leased, err := x.Gate.Lease(lctx, cell.ID, control.Lease{
		Run:     x.id,
		Policy:  x.plan.Policy,
		Address: cell.Gate,
		Prefix:  cell.Prefix,
		Pool:    cell.Pool,
	})
	if err != nil {
		return nil, err
	}
	return &lease{cell: cell, digest: leased.Digest, follow: x.startFollower(leased)}, nil
}

// abandon takes apart a cell whose lease failed. The lease is ended, too: it may
// have come about although the call failed.
func (x *execution) abandon(cell backend.Cell) {
	ctx, cancel := context.WithTimeout(context.Background(), leaseTimeout)
	defer cancel()
	x.Gate.Release(ctx, cell.ID) // nothing to do about an error: the cell goes away
	x.Cells.Discard(cell)
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
	case !errors.As(err, &refused):
		return gateUnavailable(fmt.Sprintf("the gate could not be reached: %v", err))
	case refused.Code == control.CodeStopping:
		return gateUnavailable("the gate is about to end")
	case refused.Code == control.CodeNoPolicy:
		return &api.Error{Code: api.CodePolicyDenied, Message: "the gate refused the policy: " + refused.Error()}
	}
	return startFailed("lease a cell", err)
}

// endLease ends the lease, keeps the final receipt and gives the cell back.
func (x *execution) endLease(l *lease) {
	ctx, cancel := context.WithTimeout(context.Background(), leaseTimeout)
	defer cancel()
	l.follow.settle()
	final, err := x.Gate.Release(ctx, l.cell.ID)
	if err == nil {
		l.follow.await(time.Second)
		x.outcome.receipt = final.Receipt
		for i := range final.Receipt.Hosts { // an agent may have put a secret into a name
			final.Receipt.Hosts[i].Host = x.redactor.String(final.Receipt.Hosts[i].Host)
		}
	} else {
		l.spoilt = true
		x.log.Warn("the lease could not be ended", "cell", l.cell.ID, "error", err)
		x.outcome.receipt = l.follow.receipt()
	}
	l.follow.stop()
	if l.spoilt || l.follow.lost() {
		x.Cells.Discard(l.cell)
		return
	}
	x.Cells.Put(l.cell)
}
