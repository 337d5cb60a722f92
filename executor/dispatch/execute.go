package dispatch

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"sallyport/executor/api"
	"sallyport/executor/audit"
	"sallyport/executor/place"
	"sallyport/executor/plan"
	"sallyport/executor/queue"
	"sallyport/executor/store"
	"sallyport/executor/task"
)

// unreached are the timings of an execution that has reached no stage.
func unreached() api.Timings {
	return api.Timings{Queue: -1, Policy: -1, Token: -1, Cell: -1, Start: -1, Ready: -1, FirstOutput: -1, Total: -1}
}

// execute takes an execution through the queue and its run to its end.
func (d *Dispatcher) execute(ctx context.Context, p *plan.Plan, ticket *queue.Ticket, entry *store.Entry, timings api.Timings) {
	id, accepted := entry.Meta.ID, entry.Meta.Accepted
	log := d.cfg.Log.With("run", id)
	note := func(ev api.Event) {
		if err := entry.Append(ev); err != nil { // the run itself will find that it cannot record
			log.Error("an event could not be recorded", "error", err)
		}
	}
	known := draft(p, entry.Meta, d.backends.Isolation(p.Backend), d.redactorOf(p))
	if err := keepDraft(entry, known, nil); err != nil {
		log.Error("the draft of an audit record could not be written", "error", err)
	}
	note(api.Event{Type: api.EventAccepted, Execution: id})

	var res api.Result
	var held time.Duration // its place
	if failure := d.await(ctx, ticket, note); failure != nil {
		res = task.Failed(id, accepted, d.backends.Isolation(p.Backend), timings, failure)
	} else {
		began := time.Now()
		timings.Queue = began.Sub(accepted).Milliseconds()
		entry.Run()
		if user, lent := ticket.User(); lent {
			p.UID, p.GID = user, user
		}
		res = d.proceed(ctx, p, entry, known, timings)
		held = time.Since(began)
	}
	var signed audit.Record
	if err := entry.Look(func(left store.Remains) { signed = d.audit.add(left, audit.StateFinished, &res) }); err != nil {
		log.Error("what is on disk of a run cannot be read for its audit record", "error", err)
	}
	ticket.Leave(held) // first, so that whoever sees the result finds the place free
	d.deactivate(id)
	report(log, p, entry.Meta, res) // first as well: whoever sees the result finds the line
	d.metrics.ended(p, res)
	if err := entry.Finish(res); err != nil {
		log.Error("the result could not be recorded", "error", err)
	}
	d.spending.end(id)
	d.audit.tell(signed, entry)
	d.sweep()
}

// lookPause is the time between two looks at where a run stands that waits.
const lookPause = 5 * time.Second

// await waits for a place among the runs at once, and has noted where the run stands
// meanwhile.
func (d *Dispatcher) await(ctx context.Context, ticket *queue.Ticket, note func(api.Event)) *api.Error {
	place, waits := ticket.Place()
	note(queued(place, waits))
	looks := time.NewTicker(lookPause)
	defer looks.Stop()
	var late <-chan time.Time
	if d.cfg.QueueTime > 0 {
		timer := time.NewTimer(d.cfg.QueueTime)
		defer timer.Stop()
		late = timer.C
	}
	for {
		select {
		case <-ticket.Begun():
			return nil
		case <-ctx.Done():
			return why(ctx)
		case <-late:
			return waitedTooLong(d.cfg.QueueTime, place)
		case <-looks.C:
			if now, waits := ticket.Place(); waits && now.Ahead != place.Ahead {
				place = now
				note(queued(place, true))
			}
		}
	}
}

// queued is the event of a run in the queue.
func queued(place queue.Place, waits bool) api.Event {
	ev := api.Event{Type: api.EventStage, Stage: "queue"}
	if waits {
		ev.Queue = &api.QueuePlace{Ahead: place.Ahead, ExpectedWaitMS: place.Wait.Milliseconds()}
	}
	return ev
}

// waitedTooLong says that a run has waited for longer than any may.
func waitedTooLong(limit time.Duration, place queue.Place) *api.Error {
	return &api.Error{
		Code: api.CodeBusy, Message: fmt.Sprintf("no place came free within %v; try again later", limit), Retryable: true,
		Details: map[string]any{"retryAfterMs": max(place.Wait, waitForPlace).Milliseconds()},
	}
}

// proceed runs the plan once the boundary has been proven.
func (d *Dispatcher) proceed(ctx context.Context, p *plan.Plan, entry *store.Entry, known audit.Record, timings api.Timings) api.Result {
	failure := d.proofs[p.Backend].Await(ctx)
	if failure == nil {
		failure = d.stillApproved(ctx, p)
	}
	if ctx.Err() != nil {
		failure = why(ctx)
	}
	if failure != nil {
		return task.Failed(entry.Meta.ID, entry.Meta.Accepted, d.backends.Isolation(p.Backend), timings, failure)
	}
	if err := keepDraft(entry, known, d.proofs[p.Backend].Report()); err != nil {
		failure = place.StartFailed("write down what is to run", err)
		return task.Failed(entry.Meta.ID, entry.Meta.Accepted, d.backends.Isolation(p.Backend), timings, failure)
	}
	return d.runner.Run(ctx, p, entry, timings)
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
		"agent", p.Adapter.Name, "policy", p.Policy, "success", res.Success, "stopReason", res.StopReason,
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
