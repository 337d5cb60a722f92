package executor

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	"sallyport/executor/api"
)

const (
	// proofTimeout bounds one check of the boundary, whose steps are bounded each for
	// itself, on the slowest of machines; proofPatience how long a run waits for the
	// first one.
	proofTimeout  = 6 * time.Minute
	proofPatience = time.Minute
	// proofPause is the time between attempts at the first check.
	proofPause = 2 * time.Second
	// proofRest is the time from the end of a check that a caller has asked for to the
	// next one: each takes two cells and listens on the host.
	proofRest = 10 * time.Second
)

// A proof is what is known of the boundary. Until a check has been made, and
// after one in which something got through, no run may start.
type proof struct {
	boundary Boundary
	ctx      context.Context // of the executor's background
	log      *slog.Logger
	count    func(outcome string)
	flight   singleflight.Group

	mu      sync.Mutex          // guards what follows
	report  *api.BoundaryReport // of the last check that could be made
	err     error               // of the last check, where it could not
	asking  int                 // callers that wait for a check
	rested  time.Time           // when the next one may be asked for, while asking is 0
	changed chan struct{}       // closed, and replaced, after every check
}

// first checks until a check can be made: at boot the gate may not be there yet.
func (p *proof) first() {
	for {
		if _, err := p.check(p.ctx); err == nil || p.ctx.Err() != nil {
			return
		}
		select {
		case <-p.ctx.Done():
			return
		case <-time.After(proofPause):
		}
	}
}

// ask is check for whoever calls the API: at the same time there is one check, which
// they share, and then none for a while. wait, if it is not 0, says how long that is
// still; nothing is checked then.
func (p *proof) ask(ctx context.Context) (report api.BoundaryReport, wait time.Duration, err error) {
	p.mu.Lock()
	if wait := time.Until(p.rested); p.asking == 0 && wait > 0 {
		p.mu.Unlock()
		return report, wait, nil
	}
	p.asking++
	p.mu.Unlock()
	report, err = p.check(ctx)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asking--
	p.rested = time.Now().Add(proofRest)
	return report, 0, err
}

// check checks the boundary now; callers at the same time share one check.
func (p *proof) check(ctx context.Context) (api.BoundaryReport, error) {
	result := p.flight.DoChan("", func() (any, error) {
		ctx, cancel := context.WithTimeout(p.ctx, proofTimeout)
		defer cancel()
		report, err := p.boundary.Check(ctx)
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

func (p *proof) note(report api.BoundaryReport, err error) {
	outcome := boundaryBroken
	switch {
	case err != nil:
		outcome = boundaryUnknown
	case report.Passed:
		outcome = boundaryHeld
	}
	p.count(outcome)
	p.mu.Lock()
	p.err = err
	if err == nil {
		p.report = &report
	}
	close(p.changed)
	p.changed = make(chan struct{})
	p.mu.Unlock()
	switch outcome {
	case boundaryUnknown:
		p.log.Warn("the boundary could not be checked", "error", err)
	case boundaryHeld:
		p.log.Info("the boundary is proven", "engine", report.Engine, "probes", len(report.Findings))
	default:
		p.log.Error("the boundary does not hold; no run will start", "engine", report.Engine, "probes", report.Failed())
	}
	for _, w := range report.Warnings {
		p.log.Warn("about the host", "text", w)
	}
}

// state returns the last report, or nil, what announces the next, and the error
// of the last check.
func (p *proof) state() (report *api.BoundaryReport, changed <-chan struct{}, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.report, p.changed, p.err
}

// why says why no run may start, or nothing.
func (p *proof) why() string {
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

// await waits for the first check and returns why a run must not start, or nil.
func (p *proof) await(ctx context.Context) *api.Error {
	patience := time.NewTimer(proofPatience)
	defer patience.Stop()
	for {
		report, changed, _ := p.state()
		if report != nil {
			break
		}
		select {
		case <-changed:
			continue
		case <-patience.C:
		case <-ctx.Done():
		}
		break
	}
	why := p.why()
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
