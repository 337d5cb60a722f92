package place

import (
	"context"
	"strings"
	"time"

	"sallyport/entrypoint/wire"
	"sallyport/executor/api"
	"sallyport/executor/backend"
)

// Start starts the sandbox in the cell. Stop must follow.
func (p *Place) Start(ctx context.Context) *api.Error {
	sctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	sandbox, err := p.backend.Sandboxes.Start(sctx, backend.Spec{
		Name:       p.spec.ID,
		Image:      p.spec.Image,
		UID:        p.spec.UID,
		GID:        p.spec.GID,
		Workspace:  p.dir,
		Attachment: backend.ByCell,
		Cell:       p.cell,
		Limits:     p.spec.Limits,
	})
	if err != nil {
		return Cause(ctx, StartFailed("start the sandbox", err))
	}
	p.sandbox = sandbox
	return nil
}

// Sandbox is the backend's identifier of the sandbox and the digest of its image, empty
// before it was started.
func (p *Place) Sandbox() (id, image string) {
	if p == nil || p.sandbox == nil {
		return "", ""
	}
	return p.sandbox.ID, p.sandbox.ImageDigest
}

// Ready waits for PID 1 and returns the wire to it, which ends with the sandbox. A
// sandbox that does not come up is never given a job.
func (p *Place) Ready(ctx context.Context) (*wire.Session, *api.Error) {
	rctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	session, err := wire.Open(rctx, p.sandbox.Stdin, p.sandbox.Stdout)
	if err != nil {
		failure := StartFailed("start the sandbox", err)
		failure.Details = p.LastWords()
		return nil, Cause(ctx, failure)
	}
	p.session = session
	return session, nil
}

// endedTimeout is how long a sandbox that seems to have ended has to do so.
const endedTimeout = 2 * time.Second

// LastWords are what the engine says of a sandbox that ended before its time, or nil
// where it has not ended.
func (p *Place) LastWords() map[string]any {
	ctx, cancel := context.WithTimeout(context.Background(), endedTimeout)
	defer cancel()
	exit, err := p.sandbox.Wait(ctx)
	if err != nil {
		return nil
	}
	details := map[string]any{"sandboxExitCode": exit.Code}
	if text := Printable(p.spec.Redact(exit.Stderr)); text != "" {
		details["stderr"] = text
	}
	return details
}

// Printable is text of unknown origin as it may stand in a result.
func Printable(s string) string {
	return strings.TrimSpace(strings.ToValidUTF8(s, "\uFFFD"))
}

// Kill ends the sandbox, and with it the job that runs there, at once.
func (p *Place) Kill() {
	ctx, cancel := context.WithTimeout(context.Background(), teardownTimeout)
	defer cancel()
	if err := p.sandbox.Remove(ctx); err != nil {
		p.spec.Log.Error("the sandbox could not be killed", "sandbox", p.sandbox.ID, "error", err)
	}
	p.session.Close() // ends the job here, whatever the sandbox does
}

// Stop removes the sandbox and takes from what it has left in the caller's directory what
// must not stay there. It returns what the caller has to be told.
func (p *Place) Stop() (warnings []string) {
	if p.session != nil {
		p.session.Close()
	}
	ctx, cancel := context.WithTimeout(context.Background(), teardownTimeout)
	defer cancel()
	if err := p.sandbox.Remove(ctx); err != nil {
		p.stuck = true
		p.spec.Log.Error("the sandbox could not be removed", "sandbox", p.sandbox.ID, "error", err)
	}
	return p.stripSetID()
}
