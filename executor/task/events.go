package task

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"sallyport/executor/api"
	"sallyport/executor/backend"
	"sallyport/executor/plan"
	"sallyport/executor/redact"
	"sallyport/executor/sessionlog"
	"sallyport/executor/store"
)

// A recorder writes down what happens in a task: as events, and in the session log.
type recorder struct {
	entry *store.Entry
	limit int64 // of the events, in bytes
	spent *budget
	log   *slog.Logger
	// redactor knows what the runner's knows and the secrets of this task.
	redactor *redact.Redactor
	// fail ends the task with an error; the first one counts.
	fail func(error)

	mu      sync.Mutex // guards session
	session *sessionlog.Log
}

// newRecorder begins the records of a plan's task. A session log that cannot be written
// does not end the task.
func newRecorder(r *Runner, p *plan.Plan, e *store.Entry, redactor *redact.Redactor, fail func(error)) *recorder {
	cwd := p.Dir
	if cwd == "" {
		cwd = backend.WorkspaceDir
	}
	rec := &recorder{
		entry: e, limit: p.Limits.OutputBytes, spent: &budget{costUSD: p.Limits.CostUSD, tokens: p.Limits.Tokens, charge: p.Charge}, log: r.Log.With("run", e.Meta.ID), redactor: redactor, fail: fail,
		session: sessionlog.New(p.SessionsDir, cwd, e.Meta.ID),
	}
	rec.session.Prompt(rec.redactor.String(p.Request.Prompt))
	return rec
}

// since is the time since the task was accepted, in ms.
func (r *recorder) since() int64 { return time.Since(r.entry.Meta.Accepted).Milliseconds() }

// stage notes that the task has reached a stage.
func (r *recorder) stage(name string) {
	r.emit(api.Event{Type: api.EventStage, Stage: name})
}

// warn tells the caller something that does not end the task.
func (r *recorder) warn(format string, args ...any) {
	r.emit(api.Event{Type: api.EventWarning, Text: r.redactor.String(fmt.Sprintf(format, args...))})
}

// emit appends an event to the record. Once that is full only what the executor and the
// gate say is added, which is bounded by itself.
func (r *recorder) emit(ev api.Event) {
	if fromAgent(ev.Type) && r.full() {
		return
	}
	if ev.Usage != nil {
		if failure := r.spent.add(*ev.Usage); failure != nil {
			defer r.fail(failure) // once the event that says so is on record
		}
	}
	switch err := r.entry.Append(ev); {
	case errors.Is(err, store.ErrFinished):
		return
	case err != nil:
		// A task of which nothing can be recorded must not go on.
		r.fail(&api.Error{Code: api.CodeLost, Message: "the executor could not record the run's events: " + err.Error(), Retryable: true})
		return
	}
	if r.full() {
		r.fail(outputTooLarge(r.limit))
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.session.Event(ev) // close logs the first error
}

func (r *recorder) full() bool { return r.entry.Size() > r.limit }

func fromAgent(t api.EventType) bool {
	switch t {
	case api.EventStage, api.EventWarning, api.EventEgress, api.EventResult:
		return false
	}
	return true
}

// A budget is what a task's models may take. Where a bound is 0 there is none.
type budget struct {
	costUSD float64
	tokens  int64
	charge  func(usd float64) *api.Error // what all runs of a tenant take; nil for none

	mu   sync.Mutex // guards used
	used api.Usage
}

// add notes what was used, and says that it is too much.
func (b *budget) add(u api.Usage) *api.Error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.used.Add(u)
	var over *api.Error
	if b.charge != nil {
		over = b.charge(max(u.CostUSD, 0))
	}
	tokens := b.used.InputTokens + b.used.OutputTokens + b.used.CacheReadTokens + b.used.CacheCreationTokens
	switch {
	case b.costUSD > 0 && b.used.CostUSD > b.costUSD:
		return &api.Error{
			Code: api.CodeBudget, Message: fmt.Sprintf("the run's models cost $%g; its budget is $%g", b.used.CostUSD, b.costUSD),
			Details: map[string]any{"costUsd": b.used.CostUSD, "budgetUsd": b.costUSD},
		}
	case b.tokens > 0 && tokens > b.tokens:
		return &api.Error{
			Code: api.CodeBudget, Message: fmt.Sprintf("the run's models took %d tokens; its budget is %d", tokens, b.tokens),
			Details: map[string]any{"tokens": tokens, "budgetTokens": b.tokens},
		}
	case over != nil:
		return over
	}
	return nil
}

func outputTooLarge(limit int64) *api.Error {
	return &api.Error{
		Code:    api.CodeOutputTooLarge,
		Message: fmt.Sprintf("the run's output was cut: it went over its limit of %d bytes", limit),
		Details: map[string]any{"limitBytes": limit},
	}
}

// close ends the session log.
func (r *recorder) close(res api.Result) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.session.Result(res) // close returns the first error
	if err := r.session.Close(); err != nil {
		r.log.Warn("the session log is incomplete", "error", err)
	}
}
