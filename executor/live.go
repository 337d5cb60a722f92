package executor

import (
	"context"
	"log/slog"
	"time"

	"sallyport/executor/api"
	"sallyport/executor/plan"
	"sallyport/executor/run"
	"sallyport/executor/store"
)

// unreached are the timings of an execution that has reached no stage.
func unreached() api.Timings {
	return api.Timings{Queue: -1, Policy: -1, Token: -1, Cell: -1, Start: -1, Ready: -1, FirstOutput: -1, Total: -1}
}

// live takes an execution through the queue and its run to its end.
func (e *Executor) live(ctx context.Context, p *plan.Plan, entry *store.Entry, timings api.Timings) {
	id, accepted := entry.Meta.ID, entry.Meta.Accepted
	log := e.cfg.Log.With("run", id)
	note := func(ev api.Event) {
		if err := entry.Append(ev); err != nil { // the run itself will find that it cannot record
			log.Error("an event could not be recorded", "error", err)
		}
	}
	note(api.Event{Type: api.EventAccepted, Execution: id})
	note(api.Event{Type: api.EventStage, Stage: "queue"})

	var res api.Result
	if failure := e.enter(ctx); failure != nil {
		res = run.Failed(id, accepted, e.cfg.Isolation, timings, failure)
	} else {
		timings.Queue = time.Since(accepted).Milliseconds()
		entry.Run()
		giveBack := e.users.lend(p)
		res = e.proceed(ctx, p, entry, timings)
		giveBack()
		<-e.slots
	}
	e.mu.Lock()
	delete(e.active, id) // first, so that whoever sees the result finds the place free
	e.mu.Unlock()
	report(log, p, entry.Meta, res) // first as well: whoever sees the result finds the line
	e.metrics.ended(p, res)
	if err := entry.Finish(res); err != nil {
		log.Error("the result could not be recorded", "error", err)
	}
	e.sweep()
}

// enter waits for a place among the runs at once.
func (e *Executor) enter(ctx context.Context) *api.Error {
	select {
	case e.slots <- struct{}{}:
		return nil
	case <-ctx.Done():
		return why(ctx)
	}
}

// proceed runs the plan once the boundary has been proven.
func (e *Executor) proceed(ctx context.Context, p *plan.Plan, entry *store.Entry, timings api.Timings) api.Result {
	failure := e.proof.await(ctx)
	if ctx.Err() != nil {
		failure = why(ctx)
	}
	if failure != nil {
		return run.Failed(entry.Meta.ID, entry.Meta.Accepted, e.cfg.Isolation, timings, failure)
	}
	return e.runner.Run(ctx, p, entry, timings)
}

// why is the reason for which an execution's context has ended.
func why(ctx context.Context) *api.Error {
	if failure, ok := context.Cause(ctx).(*api.Error); ok {
		return failure
	}
	return &api.Error{Code: api.CodeCancelled, Message: "the run was cancelled"}
}

// report writes the one log line of an execution.
func report(log *slog.Logger, p *plan.Plan, m store.Meta, res api.Result) {
	attrs := []any{
		"agent", p.Adapter.Name(), "policy", p.Policy, "success", res.Success, "stopReason", res.StopReason,
		"durationMs", res.DurationMS, "queueMs", res.Timings.Queue, "readyMs", res.Timings.Ready,
		"hosts", len(res.Receipt.Hosts), "costUsd", res.CostUSD,
	}
	if m.TaskID != "" {
		attrs = append(attrs, "taskId", m.TaskID)
	}
	if res.Error != nil {
		attrs = append(attrs, "code", res.Error.Code, "error", res.Error.Message)
	}
	log.Info("run ended", attrs...)
}
