package task

import (
	"context"
	"iter"
	"sync"
	"time"

	"sallyport/executor/api"
	"sallyport/firewall"
	"sallyport/firewall/account"
	"sallyport/gate/control"
)

// maxEgressEvents is how many distinct decisions become events, shared out as
// account.Quota says; the receipt counts them all.
const maxEgressEvents = 1000

// Decisions are those of a task's lease, read from the gate as they come. That their
// stream goes on is the sign that the gate lives: when it breaks, the task ends.
type decisions struct {
	cancel context.CancelFunc
	done   chan struct{} // closed when the stream is over

	ledger *account.Ledger

	// Only the stream's goroutine uses these.
	seen  map[decision]bool
	share account.Quota // of the events, for each kind of decision

	mu       sync.Mutex // guards what follows
	settling bool       // the task is over, so the end of the stream means nothing
	broken   bool
}

// A decision is what makes one decision another than those before it.
type decision struct {
	host    string
	port    uint16
	kind    account.Kind
	verdict firewall.Verdict
	reason  firewall.Reason
}

// follow begins to read the decisions of a run.
func follow(gate Gate, run string, leased control.Cell, rec *recorder) *decisions {
	ctx, cancel := context.WithCancel(context.Background())
	d := &decisions{
		cancel: cancel,
		done:   make(chan struct{}),
		ledger: account.NewLedger(leased.Policy, leased.Digest),
		seen:   map[decision]bool{},
		share:  account.Quota{Max: maxEgressEvents},
	}
	go func() {
		defer close(d.done)
		d.read(gate.Decisions(ctx, run, true), rec)
	}()
	return d
}

func (d *decisions) read(stream iter.Seq2[account.Record, error], rec *recorder) {
	for record, err := range stream {
		if err != nil {
			break
		}
		record.Host, record.Detail = rec.redactor.String(record.Host), rec.redactor.String(record.Detail)
		if d.add(record) {
			rec.emit(api.Event{Type: api.EventEgress, Decision: &record})
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.settling {
		d.broken = true
		rec.fail(gateUnavailable("the gate went away during the run"))
	}
}

// add counts a record and reports whether it is the first of its kind.
func (d *decisions) add(rec account.Record) bool {
	if rec.Kind == control.KindDropped {
		return false // a gap in the stream; the receipt has none
	}
	d.ledger.Add(rec)
	one := decision{rec.Host, rec.Port, rec.Kind, rec.Verdict, rec.Reason}
	if d.seen[one] || !d.share.Use(&rec) {
		return false
	}
	d.seen[one] = true
	return true
}

// settle says that the task is over: from now on the stream may end.
func (d *decisions) settle() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.settling = true
}

// await waits until the gate has ended the stream, but not for long: with the
// end of the lease it sends the last decisions and then the end.
func (d *decisions) await(limit time.Duration) {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-d.done:
	case <-timer.C:
	}
}

// stop ends the stream and waits for that.
func (d *decisions) stop() {
	d.settle()
	d.cancel()
	<-d.done
}

// lost reports whether the stream broke during the run.
func (d *decisions) lost() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.broken
}

// receipt is what was seen of the decisions, for a task whose gate can no
// longer say.
func (d *decisions) receipt() account.Receipt { return d.ledger.Receipt() }
