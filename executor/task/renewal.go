package task

import (
	"context"
	"slices"
	"sync"
	"time"

	"sallyport/entrypoint/github"
	"sallyport/entrypoint/wire"
	"sallyport/executor/tokens"
)

const (
	updateTimeout = 10 * time.Second
	// renewBefore is how long before the end of a token's life another one is minted;
	// of a short life it is a quarter.
	renewBefore = 10 * time.Minute
	// firstRenewPause and lastRenewPause are those between two tries, which double
	// from the one to the other; of a short life they are a tenth and a quarter.
	firstRenewPause = 30 * time.Second
	lastRenewPause  = 2 * time.Minute
	minRenewPause   = time.Second
)

// renew replaces the token in the sandbox before it expires, until the returned function
// is called. Without access there is none.
func (a *access) renew(ctx context.Context, session *wire.Session) (stop func()) {
	if a == nil || a.held[0].Lifetime <= 0 {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	r := &renewal{access: a, session: session, current: aged{a.held[0], a.minted}}
	var done sync.WaitGroup
	done.Go(func() { r.run(ctx) })
	return func() { cancel(); done.Wait() }
}

// An aged is a token and when it was asked for.
type aged struct {
	*tokens.Held
	minted time.Time
}

// due is the time until another one has to take its place.
func (t aged) due() time.Duration {
	return t.Lifetime - min(renewBefore, t.Lifetime/4) - time.Since(t.minted)
}

// A renewal keeps the token of one sandbox valid.
type renewal struct {
	*access
	session *wire.Session
	current aged // in the sandbox
	// next has been minted and is not in the sandbox yet; nil if there is none. It is
	// offered until it is old itself: a sandbox that takes none must not have GitHub
	// mint one after the other.
	next *aged
}

func (r *renewal) run(ctx context.Context) {
	for pause(ctx, max(r.current.due(), 0)) {
		life := r.current.Lifetime
		wait := max(min(firstRenewPause, life/10), minRenewPause)
		for {
			err := r.replace(ctx)
			if err == nil {
				break
			}
			if ctx.Err() != nil {
				return
			}
			r.rec.warn("the GitHub token could not be replaced by a fresh one yet: %v", err)
			if !pause(ctx, wait) {
				return
			}
			wait = max(min(2*wait, lastRenewPause, life/4), minRenewPause)
		}
	}
}

// pause waits and reports whether ctx still goes on.
func pause(ctx context.Context, wait time.Duration) bool {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}

// replace puts another token into the sandbox. The one before stays valid until it
// expires or the task ends: what the agent has begun with it goes on.
func (r *renewal) replace(ctx context.Context) error {
	if r.next == nil || r.next.due() <= 0 {
		if err := r.mint(ctx); err != nil {
			return err
		}
	}
	uctx, cancel := context.WithTimeout(ctx, updateTimeout)
	defer cancel()
	if err := r.session.Update(uctx, github.TokenFile(r.next.Value())); err != nil {
		return err
	}
	r.current, r.next = *r.next, nil
	r.mu.Lock()
	defer r.mu.Unlock()
	r.receipt.Refreshed++
	r.setExpiry(r.current.Held)
	r.writeDown()
	r.rec.log.Info("fresh GitHub token", "expires", r.current.Expires)
	return nil
}

// mint makes the next token and ends the one that it replaces undelivered.
func (r *renewal) mint(ctx context.Context) error {
	minted := time.Now()
	held, err := r.take(ctx)
	if err != nil {
		return err
	}
	useless := r.next
	r.next = &aged{held, minted}
	if useless == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, revokeTimeout)
	defer cancel()
	if err := useless.Revoke(ctx); err != nil {
		r.rec.log.Warn("a GitHub token that was never used could not be revoked yet", "error", r.rec.redactor.String(err.Error()))
		return nil // the keeper goes on, and so does the end of the task
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.held = slices.DeleteFunc(r.held, func(h *tokens.Held) bool { return h == useless.Held })
	return nil
}
