package run

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
	// freshBefore is how long before the end of a token's life a fresh one is minted;
	// of a short life it is a quarter.
	freshBefore = 10 * time.Minute
	// firstRenewPause and lastRenewPause are those between two attempts, which double
	// from the one to the other; of a short life they are a tenth and a quarter.
	firstRenewPause = 30 * time.Second
	lastRenewPause  = 2 * time.Minute
	minRenewPause   = time.Second
)

// keepFresh replaces the token in the sandbox before it expires, as long as the
// job runs. The returned function ends that.
func (x *execution) keepFresh(ctx context.Context, session *wire.Session) (stop func()) {
	if x.github == nil || x.github.held[0].Lifetime <= 0 {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	r := &renewal{access: x.github, session: session, current: aged{x.github.held[0], x.github.minted}}
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
	return t.Lifetime - min(freshBefore, t.Lifetime/4) - time.Since(t.minted)
}

// A renewal keeps the token of one sandbox fresh.
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
	for wake(ctx, max(r.current.due(), 0)) {
		life := r.current.Lifetime
		pause := max(min(firstRenewPause, life/10), minRenewPause)
		for {
			err := r.renew(ctx)
			if err == nil {
				break
			}
			if ctx.Err() != nil {
				return
			}
			r.x.warn("the GitHub token could not be replaced by a fresh one yet: %v", err)
			if !wake(ctx, pause) {
				return
			}
			pause = max(min(2*pause, lastRenewPause, life/4), minRenewPause)
		}
	}
}

// wake waits and reports whether ctx still goes on.
func wake(ctx context.Context, wait time.Duration) bool {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}

// renew puts a fresh token into the sandbox. The one before stays valid until it
// expires or the run ends: what the agent has begun with it goes on.
func (r *renewal) renew(ctx context.Context) error {
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
	r.note()
	r.x.log.Info("fresh GitHub token", "expires", r.current.Expires)
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
		r.x.log.Warn("a GitHub token that was never used could not be revoked yet", "error", r.x.redactor.String(err.Error()))
		return nil // the keeper goes on, and so does the end of the run
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.held = slices.DeleteFunc(r.held, func(h *tokens.Held) bool { return h == useless.Held })
	return nil
}
