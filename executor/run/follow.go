package run

import (
	"context"
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

// A follower reads a run's decisions from the gate. That the stream goes on is
// the sign that the gate lives: when it breaks, the run ends.
type follower struct {
	cancel context.CancelFunc
	done   chan struct{} // closed when the stream is over

	ledger *account.Ledger

	// Only the stream's goroutine uses these.
	seen   map[decision]bool
	places account.Quota // in seen

	mu       sync.Mutex // guards what follows
	settling bool       // the run is over, so the end of the stream means nothing
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

func (x *execution) startFollower(leased control.Cell) *follower {
	ctx, cancel := context.WithCancel(context.Background())
	f := &follower{
		cancel: cancel,
		done:   make(chan struct{}),
		ledger: account.NewLedger(leased.Policy, leased.Digest),
		seen:   map[decision]bool{},
		places: account.Quota{Max: maxEgressEvents},
	}
	go func() {
		defer close(f.done)
		f.run(ctx, x)
	}()
	return f
}

func (f *follower) run(ctx context.Context, x *execution) {
	for rec, err := range x.Gate.Decisions(ctx, x.id, true) {
		if err != nil {
			break
		}
		rec.Host, rec.Detail = x.redactor.String(rec.Host), x.redactor.String(rec.Detail)
		if f.take(rec) {
			x.emit(api.Event{Type: api.EventEgress, Decision: &rec})
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.settling {
		f.broken = true
		x.fail(gateUnavailable("the gate went away during the run"))
	}
}

// take counts a record and reports whether it is the first of its kind.
func (f *follower) take(rec account.Record) bool {
	if rec.Kind == control.KindDropped {
		return false // a gap in the stream; the receipt has none
	}
	f.ledger.Add(rec)
	d := decision{rec.Host, rec.Port, rec.Kind, rec.Verdict, rec.Reason}
	if f.seen[d] || !f.places.Use(&rec) {
		return false
	}
	f.seen[d] = true
	return true
}

// settle says that the run is over: from now on the stream may end.
func (f *follower) settle() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.settling = true
}

// await waits until the gate has ended the stream, but not for long: with the
// end of the lease it sends the last decisions and then the end.
func (f *follower) await(limit time.Duration) {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-f.done:
	case <-timer.C:
	}
}

// stop ends the stream and waits for that.
func (f *follower) stop() {
	f.settle()
	f.cancel()
	<-f.done
}

// lost reports whether the stream broke during the run.
func (f *follower) lost() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.broken
}

// receipt is what was seen of the run's decisions, for a run whose gate can no
// longer say.
func (f *follower) receipt() account.Receipt { return f.ledger.Receipt() }
