// Package executor is the HTTP API of the server that runs agents: who may call, what
// the calls look like, and the streams of events. What the calls ask for is done by
// package dispatch. New makes an Executor, Serve or Handler serves its API, Shutdown ends
// it.
package executor

import (
	"fmt"
	"log/slog"
	"maps"
	"net/http"

	"sallyport/executor/api"
	"sallyport/executor/caller"
	"sallyport/executor/dispatch"
	"sallyport/executor/store"
)

// Config is what an Executor is made of.
type Config struct {
	dispatch.Config
	// Token is what callers must show; see caller.LoadToken.
	Token string
}

// An Executor serves the API of a dispatcher. It is safe for concurrent use.
type Executor struct {
	*dispatch.Dispatcher
	callers *caller.Tokens
	log     *slog.Logger
}

// New makes an executor on its state directory; see dispatch.New. Shutdown must follow.
func New(cfg Config) (*Executor, error) {
	callers := new(caller.Tokens)
	if err := callers.Add(cfg.Token, caller.Operator()); err != nil {
		return nil, fmt.Errorf("configure the executor: %w", err)
	}
	hidden := map[string]string{"SALLYPORT_TOKEN": cfg.Token}
	maps.Copy(hidden, cfg.Redact)
	cfg.Redact = hidden
	d, err := dispatch.New(cfg.Config)
	if err != nil {
		return nil, err
	}
	callers.Keep(d.Database())
	return &Executor{Dispatcher: d, callers: callers, log: cfg.Log}, nil
}

// entry finds the execution that the path names, or answers.
func (e *Executor) entry(w http.ResponseWriter, r *http.Request, by caller.Caller) (*store.Entry, bool) {
	entry, problem := e.Get(by, r.PathValue("id"))
	if problem != nil {
		writeProblem(w, problem)
	}
	return entry, problem == nil
}

func unreadable(entry *store.Entry) *api.Problem {
	return api.NewProblem(http.StatusInternalServerError, api.CodeLost, "the record of execution "+entry.Meta.ID+" cannot be read")
}
