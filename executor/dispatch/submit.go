package dispatch

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"time"

	"github.com/oklog/ulid/v2"

	"sallyport/executor/api"
	"sallyport/executor/caller"
	"sallyport/executor/plan"
	"sallyport/executor/queue"
	"sallyport/executor/redact"
	"sallyport/executor/store"
)

// Submit judges a caller's request and, where it can be met, begins its execution. With a
// key that the caller's tenant used before it returns the execution of that time,
// provided that the request is the same. Nothing has been started when it returns a
// problem.
func (d *Dispatcher) Submit(by caller.Caller, req api.Request, key string) (*store.Entry, *api.Problem) {
	entry, problem := d.submit(by, req, key)
	if problem != nil {
		d.metrics.refused.WithLabelValues(string(problem.Code)).Inc()
	}
	return entry, problem
}

func (d *Dispatcher) submit(by caller.Caller, req api.Request, key string) (*store.Entry, *api.Problem) {
	entry, problem := d.attempt(by, req, key)
	if problem == begunMeanwhile {
		return d.attempt(by, req, key)
	}
	return entry, problem
}

func (d *Dispatcher) attempt(by caller.Caller, req api.Request, key string) (*store.Entry, *api.Problem) {
	arrived := time.Now()
	meta := store.Meta{Tenant: by.Tenant, Key: key, Body: digest(req)}
	if entry, problem := d.known(meta); entry != nil || problem != nil {
		return entry, problem
	}
	health, problem := d.gateHealth()
	if problem != nil {
		return nil, problem
	}
	if why := denying(health); why != nil {
		return nil, api.Unavailable(api.CodeGateUnavailable, why.Error())
	}
	if err := d.audit.settle(); err != nil {
		return nil, api.Unavailable(api.CodeStartFailed, unaudited(err).Error())
	}
	if w := req.Opts.Workflow; w != nil {
		meta.Workflow = shown(*w, d.runner.Redactor)
	}
	p, first, problem := d.judge(by, req, meta, health)
	if problem != nil {
		return nil, problem
	}
	if problem := d.space(p); problem != nil {
		return nil, problem
	}
	meta.ID, meta.Accepted = newID(arrived), arrived
	if problem := d.afford(p, meta.ID); problem != nil {
		return nil, problem
	}
	meta.Agent, meta.Policy, meta.Backend = p.Adapter.Name, p.Policy, p.Backend
	redactor := d.redactorOf(p)
	meta.TaskID, meta.Model = redactor.String(req.Opts.TaskID), redactor.String(p.Request.Config.Model)
	meta.Workflow = shown(meta.Workflow, redactor)
	timings := unreached()
	timings.Policy = time.Since(arrived).Milliseconds()
	if p.Dir != "" {
		meta.Dir, meta.UID = p.Dir, p.UID
	}
	kept, err := withoutSecrets(req, redactor)
	if err != nil {
		return nil, d.unrecorded(err)
	}
	return d.admit(p, meta, kept, first, timings)
}

// digest identifies what is asked, whatever the order of its fields.
func digest(req api.Request) string {
	data, err := json.Marshal(req)
	if err != nil { // only a RawMessage that is no JSON, which Decode lets not through
		return ""
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// withoutSecrets returns the request as it may be kept, as JSON. The prompt, which may be
// most of it, is not taken through the decoder and back.
func withoutSecrets(req api.Request, redactor *redact.Redactor) ([]byte, error) {
	prompt := req.Prompt
	req.Prompt = ""
	var clean map[string]json.RawMessage
	data, err := json.Marshal(req)
	if err == nil {
		data, err = redactor.JSON(data)
	}
	if err == nil {
		err = json.Unmarshal(data, &clean)
	}
	if err == nil {
		clean["prompt"], err = json.Marshal(redactor.String(prompt))
	}
	if err != nil {
		return nil, fmt.Errorf("take the secrets out of a request: %w", err)
	}
	return json.Marshal(clean)
}

func newID(t time.Time) string {
	return strings.ToLower(ulid.MustNew(ulid.Timestamp(t), rand.Reader).String())
}

// known returns the execution that the key stands for already, if any.
func (d *Dispatcher) known(meta store.Meta) (*store.Entry, *api.Problem) {
	if meta.Key == "" {
		return nil, nil
	}
	id, body, err := d.store.Key(meta.Tenant, meta.Key)
	switch {
	case err != nil:
		return nil, d.unread(err)
	case id == "":
		return nil, nil
	case body != meta.Body:
		return nil, api.NewProblem(http.StatusUnprocessableEntity, api.CodeIdempotencyReuse, "the Idempotency-Key was used for another request; each request needs a key of its own")
	}
	entry, err := d.store.Get(id)
	switch {
	case err != nil:
		return nil, d.unread(err)
	case entry == nil:
		p := api.NewProblem(http.StatusGone, api.CodeGone, fmt.Sprintf("execution %s, for which the Idempotency-Key stands, is kept no longer; to run the request again, use another key", id))
		p.Details = map[string]any{"executionId": id}
		return nil, p
	}
	return entry, nil
}

func (d *Dispatcher) unread(err error) *api.Problem {
	d.cfg.Log.Error("the record of executions could not be read", "error", err)
	return api.NewProblem(http.StatusInternalServerError, api.CodeInternal, "the executor cannot read its record of executions; its log says why")
}

// admit takes a plan into the queue.
func (d *Dispatcher) admit(p *plan.Plan, meta store.Meta, request []byte, first *store.Instance, timings api.Timings) (*store.Entry, *api.Problem) {
	d.admission.Lock()
	defer d.admission.Unlock()
	if entry, problem := d.known(meta); entry != nil || problem != nil {
		return entry, problem
	}
	ticket, problem := d.place(meta.ID, p)
	if problem != nil {
		return nil, problem
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	d.activate(meta.ID, cancel, p.Effective.Approvals) // first, so that whoever finds it can cancel it
	entry, err := d.store.Create(meta, request, p.Effective, first)
	if err != nil {
		cancel(nil)
		d.deactivate(meta.ID)
		ticket.Leave(0)
		if errors.Is(err, store.ErrBegun) {
			return nil, begunMeanwhile
		}
		return nil, d.unrecorded(err)
	}
	d.tasks.Go(func() {
		defer cancel(nil)
		d.execute(ctx, p, ticket, entry, timings)
	})
	return entry, nil
}

func (d *Dispatcher) activate(id string, cancel context.CancelCauseFunc, relies []api.ApprovalRef) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.active[id], d.relying[id] = cancel, relies
}

func (d *Dispatcher) deactivate(id string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.active, id)
	delete(d.relying, id)
}

func (d *Dispatcher) unrecorded(err error) *api.Problem {
	d.cfg.Log.Error("an execution could not be recorded", "error", err)
	return api.NewProblem(http.StatusInternalServerError, api.CodeStartFailed, "the executor cannot record the execution; its log says why")
}

// space says why there is no space for a run on disk, or nil.
func (d *Dispatcher) space(p *plan.Plan) *api.Problem {
	for _, dir := range []string{d.cfg.State, d.runner.Places.Workspaces, p.Dir} {
		if dir == "" {
			continue
		}
		// Whatever else is wrong with a directory is found further on.
		if failure := d.cfg.DiskFloor.Room(dir); failure != nil && failure.Code == api.CodeDisk {
			short := api.Unavailable(failure.Code, failure.Message)
			short.Details = failure.Details
			return short
		}
	}
	return nil
}

// place admits a plan to the queue, or says why not. The caller holds admission.
func (d *Dispatcher) place(id string, p *plan.Plan) (*queue.Ticket, *api.Problem) {
	share, module := d.cfg.Profiles.Profiles().Share(p.Caller.Tenant), ""
	if p.Worker != nil {
		module = p.Caller.Tenant + "/" + p.Worker.Name
	}
	ticket, refusal := d.queue.Admit(queue.Job{
		ID: id, Tenant: p.Caller.Tenant, Weight: share.Weight, Quota: &queue.Quota{Running: share.Running, Waiting: share.Waiting}, Module: module,
		Directories: queue.Directories{Workspace: p.Dir, Sessions: p.SessionsDir, Context: p.ContextDir, Skills: p.SkillDirs},
	})
	if refusal != nil {
		return nil, busy(p.Caller, refusal)
	}
	if problem := unmoved(p); problem != nil {
		ticket.Leave(0)
		return nil, problem
	}
	return ticket, nil
}

// busy says to a caller why the queue has no place.
func busy(by caller.Caller, r *queue.Refusal) *api.Problem {
	switch r.Reason {
	case queue.Quotas:
		return quotaExceeded("waiting", "runs of the tenant that wait", r.Limit, r.Limit, waitForPlace)
	case queue.Full:
		return api.Unavailable(api.CodeBusy, fmt.Sprintf("%d runs are under way or waiting, which is the limit; try again later", r.Limit))
	case queue.Overlap:
		field := map[queue.Use]string{
			queue.Workspace: "config.cwd", queue.Sessions: "config.sessionsDir", queue.Context: "config.agentContextDir",
			queue.Skills: "config.skillPaths",
		}[r.Use]
		if !by.Sees(r.Tenant) {
			return conflict(field, field+" overlaps what a run uses that is under way")
		}
		p := conflict(field, fmt.Sprintf("%s overlaps what execution %s uses, which is under way", field, r.Holder))
		p.Details["executionId"] = r.Holder
		return p
	}
	return api.Unavailable(api.CodeBusy, "the executor is being shut down")
}

// unmoved checks that the plan's directories are what they were when they were
// judged: a run that has ended since may have put links in their place. From now
// on no other run can.
func unmoved(p *plan.Plan) *api.Problem {
	for field, dir := range map[string]string{"config.cwd": p.Dir, "config.sessionsDir": p.SessionsDir} {
		if dir == "" {
			continue
		}
		if now, err := filepath.EvalSymlinks(dir); err != nil || now != dir {
			return conflict(field, field+" has changed in this moment")
		}
	}
	return nil
}

func conflict(field, detail string) *api.Problem {
	p := api.NewProblem(http.StatusConflict, api.CodeBusy, detail)
	p.Retryable = true
	p.Details = map[string]any{"field": field}
	return p
}

// Get returns the record of an execution, if it is the caller's to see: those of another
// tenant do not exist for it.
func (d *Dispatcher) Get(by caller.Caller, id string) (*store.Entry, *api.Problem) {
	entry, err := d.store.Get(id)
	switch {
	case err != nil:
		return nil, d.unread(err)
	case entry == nil || !by.Sees(entry.Meta.Tenant):
		return nil, api.NewProblem(http.StatusNotFound, api.CodeNotFound, "there is no such execution")
	}
	return entry, nil
}

// List lists executions that are the caller's to see, the newest first, and says whether there
// are more behind them.
func (d *Dispatcher) List(by caller.Caller, l store.Listing) (page []api.ExecutionSummary, more bool, problem *api.Problem) {
	l.Tenant, l.AllTenants = by.Tenant, by.Tenant == caller.Everyone
	page, more, err := d.store.List(l)
	if err != nil {
		return nil, false, d.unread(err)
	}
	return page, more, nil
}

// Cancel asks an execution of the caller's to end. It reports whether there was anything
// to end.
func (d *Dispatcher) Cancel(by caller.Caller, id string) bool {
	if _, problem := d.Get(by, id); problem != nil {
		return false
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	cancel, ok := d.active[id]
	if ok {
		cancel(&api.Error{Code: api.CodeCancelled, Message: "the run was cancelled"})
	}
	return ok
}
