package run

import (
	"log/slog"
	"sync"

	"sallyport/executor/api"
	"sallyport/executor/backend"
	"sallyport/executor/sessionlog"
)

// A transcript is the session log of a run, shared by those who emit events. A
// log that cannot be written does not end the run.
type transcript struct {
	log *slog.Logger

	mu      sync.Mutex // guards session
	session *sessionlog.Log
}

func (x *execution) openTranscript() *transcript {
	cwd := x.plan.Dir
	if cwd == "" {
		cwd = backend.WorkspaceDir
	}
	t := &transcript{log: x.log, session: sessionlog.New(x.plan.SessionsDir, cwd, x.id)}
	t.session.Prompt(x.redactor.String(x.plan.Request.Prompt))
	return t
}

func (t *transcript) add(ev api.Event) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.session.Event(ev) // close returns the first error
}

func (t *transcript) close(res api.Result) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.session.Result(res) // close returns the first error
	if err := t.session.Close(); err != nil {
		t.log.Warn("the session log is incomplete", "error", err)
	}
}
