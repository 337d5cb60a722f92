package admission

import (
	"context"
	"errors"
	"sync"
	"time"

	"sallyport/firewall"
	"sallyport/firewall/account"
	"sallyport/internal/contain"
	"sallyport/sniproxy/refusal"
)

// A Service is a cell's listener at work, and those that came in by it.
type Service struct {
	*Cell
	Kind   account.Kind
	Port   uint16 // for which names are judged, whatever port the listener has
	Ctx    context.Context
	Worker *Worker

	handler  Handler
	admitted sync.WaitGroup // connections, until they are recorded and gone
	settled  int64          // bytes that it has on the account of parked bytes; see Settle

	mu sync.Mutex // guards outside
	// outside are the tallies of connections that were not let in, by the detail of
	// their refusal; the gate's own words, of which there are few.
	outside map[string]*account.Tally
}

// A Handler serves the connections of a Service. All of it is called on the loop.
type Handler interface {
	// Join is called first, once.
	Join(s *Service)
	// Start takes over a connection that was let in, whose record is to be completed. It
	// calls Left, or has a Delivery do so, when the connection is gone.
	Start(fd int, rec account.Record)
	// Cut ends all connections that there are.
	Cut()
}

// Left counts a connection out.
func (v *Service) Left() {
	v.leave()
	v.admitted.Done()
}

// Go runs f aside; Serve waits for it. It is called while a connection is in.
func (v *Service) Go(f func()) { v.admitted.Go(f) }

// Finish completes a record and delivers it; r is nil where nothing was refused.
func (v *Service) Finish(rec *account.Record, r *refusal.Refusal) {
	v.note(rec, r)
	v.flush()
}

// note is Finish for callers that flush themselves.
func (v *Service) note(rec *account.Record, r *refusal.Refusal) {
	if r != nil {
		if rec.Verdict == firewall.Allow && rec.BytesUp|rec.BytesDown != 0 {
			rec.Allowed = rec.Reason
		}
		rec.Verdict, rec.Reason, rec.Detail = firewall.Deny, r.Reason, r.Detail
		if r.Fault != nil {
			v.Panicked(r.Fault)
		}
	}
	rec.DurationMS = time.Since(rec.Time).Milliseconds()
	v.Record(*rec)
}

func (v *Service) flush() {
	if v.Flush != nil {
		v.Flush()
	}
}

// Judged notes in a record what the policy said: by the time of its end another one
// may be in force.
func Judged(rec *account.Record, p *firewall.Policy, d firewall.Decision) {
	rec.Verdict, rec.Reason, rec.Rule, rec.Line, rec.Detail = d.Verdict, d.Reason, d.Rule, d.Line, d.Detail
	rec.Digest = p.Digest()
}

// Panicked logs a panic that was contained.
func (v *Service) Panicked(err error) { v.Warn("the handling of a connection panicked", err) }

// Warn logs a fault of the gate.
func (v *Service) Warn(msg string, err error) {
	if v.Log == nil {
		return
	}
	var p *contain.Panic
	if errors.As(err, &p) {
		err = errors.New(p.Words())
	}
	v.Log.Warn(msg, "service", v.Kind, "error", err)
}
