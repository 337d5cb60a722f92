// Package proof knows whether the boundary holds: it has the attempts to get out made, at
// the start until they can be, and whenever a caller asks for them. Until a check has
// been passed no run may start, and after one that failed none may any more.
package proof

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	"sallyport/executor/api"
	"sallyport/executor/backend"
)

const (
	// checkTimeout bounds one check of the boundary, whose steps are bounded each for
	// itself, on the slowest of machines; patience how long a run waits for the
	// first one.
	checkTimeout = 6 * time.Minute
	patience     = time.Minute
	// pause is the time between attempts at the first check.
	pause = 2 * time.Second
	// rest is the time from the end of a check that a caller has asked for to the
	// next one: each takes two cells and listens on the host.
	rest = 10 * time.Second
)

// The outcomes of a check.
const (
	Held    = "held"
	Broken  = "broken"
	Unknown = "failed" // the check could not be made
)

// A Proof is what is known of one backend's boundary. Its fields are required and must not change;
// it is safe for concurrent use.
type Proof struct {
	Boundary backend.Boundary
	Context  context.Context // bounds every check
	Log      *slog.Logger
	Count    func(outcome string) // is told of every check
	Now      func() time.Time     // measures the rest between checks

	flight singleflight.Group

	mu      sync.Mutex          // guards what follows
	report  *api.BoundaryReport // of the last check that could be made
	err     error               // of the last check, where it could not
	asking  int                 // callers that wait for a check
	rested  time.Time           // when the next one may be asked for, while asking is 0
	changed chan struct{}       // closed after the next check; nil if nobody waits for it
}

// First checks until a check can be made: at boot the gate may not be there yet.
func (p *Proof) First() {
	for {
		if _, err := p.check(p.Context); err == nil || p.Context.Err() != nil {
			return
		}
		select {
		case <-p.Context.Done():
			return
		case <-time.After(pause):
		}
	}
}

// Ask is check for whoever calls the API: at the same time there is one check, which
// they share, and then none for a while. wait, if it is not 0, says how long that is
// still; nothing is checked then.
func (p *Proof) Ask(ctx context.Context) (report api.BoundaryReport, wait time.Duration, err error) {
	p.mu.Lock()
	if wait := p.rested.Sub(p.Now()); p.asking == 0 && wait > 0 {
		p.mu.Unlock()
		return report, wait, nil
	}
	p.asking++
	p.mu.Unlock()
	report, err = p.check(ctx)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asking--
	p.rested = p.Now().Add(rest)
	return report, 0, err
}

// Asking is how many callers wait for a check.
func (p *Proof) Asking() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.asking
}

// check checks the boundary now; callers at the same time share one check.
func (p *Proof) check(ctx context.Context) (api.BoundaryReport, error) {
	result := p.flight.DoChan("", func() (any, error) {
		ctx, cancel := context.WithTimeout(p.Context, checkTimeout)
		defer cancel()
		report, err := p.Boundary.Check(ctx)
		p.note(report, err)
		return report, err
	})
	select {
	case r := <-result:
		return r.Val.(api.BoundaryReport), r.Err
	case <-ctx.Done():
		return api.BoundaryReport{}, context.Cause(ctx)
	}
}

func (p *Proof) note(report api.BoundaryReport, err error) {
	outcome := Broken
	switch {
	case err != nil:
		outcome = Unknown
	case report.Passed:
		outcome = Held
	}
	p.Count(outcome)
	p.mu.Lock()
	p.err = err
	if err == nil {
		p.report = &report
	}
	if p.changed != nil {
		close(p.changed)
		p.changed = nil
	}
	p.mu.Unlock()
	switch outcome {
	case Unknown:
		p.Log.Warn("the boundary could not be checked", "error", err)
	case Held:
		p.Log.Info("the boundary is proven", "engine", report.Engine, "probes", len(report.Findings))
	default:
		p.Log.Error("the boundary does not hold; no run will start", "engine", report.Engine, "probes", report.Failed())
	}
	for _, w := range report.Warnings {
		p.Log.Warn("about the host", "text", w)
	}
}

// state returns the last report, or nil, what announces the next, and the error
// of the last check.
func (p *Proof) state() (report *api.BoundaryReport, changed <-chan struct{}, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.changed == nil {
		p.changed = make(chan struct{})
	}
	return p.report, p.changed, p.err
}

// Report is that of the last check that could be made, nil before the first.
func (p *Proof) Report() *api.BoundaryReport {
	report, _, _ := p.state()
	return report
}

// Why says why no run may start, or nothing.
func (p *Proof) Why() string {
	report, _, err := p.state()
	switch {
	case report == nil && err != nil:
		return fmt.Sprintf("the boundary could not be checked yet: %v", err)
	case report == nil:
		return "the boundary has not been checked yet"
	case !report.Passed:
		return "the boundary does not hold: " + strings.Join(report.Failed(), ", ")
	}
	return ""
}

// Await waits for the first check and returns why a run must not start, or nil.
func (p *Proof) Await(ctx context.Context) *api.Error {
	limit := time.NewTimer(patience)
	defer limit.Stop()
	for {
		report, changed, _ := p.state()
		if report != nil {
			break
		}
		select {
		case <-changed:
			continue
		case <-limit.C:
		case <-ctx.Done():
		}
		break
	}
	why := p.Why()
	if why == "" {
		return nil
	}
	failure := &api.Error{Code: api.CodeStartFailed, Message: why, Retryable: true}
	if report, _, _ := p.state(); report != nil {
		failure.Retryable = false
		failure.Details = map[string]any{"probes": report.Failed()}
	}
	return failure
}
