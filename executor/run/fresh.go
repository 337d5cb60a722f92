package run

import (
	"context"
	"sync"
	"time"

	"sallyport/entrypoint"
	"sallyport/entrypoint/github"
	"sallyport/executor/tokens"
)

const (
	updateTimeout = 10 * time.Second
	// freshBefore is how long before the end of a token's life a fresh one is minted;
	// of a short life it is a quarter.
	freshBefore  = 10 * time.Minute
	mintPause    = 30 * time.Second // between attempts at a fresh one
	minMintPause = time.Second
)

// keepFresh replaces the token in the sandbox before it expires, as long as the
// job runs. The returned function ends that.
func (x *execution) keepFresh(ctx context.Context, session *entrypoint.Session) (stop func()) {
	if x.github == nil || x.github.held[0].Lifetime <= 0 {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	var done sync.WaitGroup
	done.Go(func() { x.github.keepFresh(ctx, session) })
	return func() { cancel(); done.Wait() }
}

func (a *access) keepFresh(ctx context.Context, session *entrypoint.Session) {
	began, life := a.minted, a.held[0].Lifetime
	for {
		wait := life - min(freshBefore, life/4) - time.Since(began)
		for wake(ctx, max(wait, 0)) {
			now := time.Now()
			held, err := a.renew(ctx, session)
			if err == nil {
				began, life = now, held.Lifetime
				break
			}
			if ctx.Err() != nil {
				return
			}
			a.x.warn("the GitHub token could not be replaced by a fresh one yet: %v", err)
			wait = max(min(mintPause, life/10), minMintPause)
		}
		if ctx.Err() != nil {
			return
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

// renew mints a fresh token and puts it into the sandbox. The one before stays
// valid until it expires or the run ends: what the agent has begun with it goes on.
func (a *access) renew(ctx context.Context, session *entrypoint.Session) (*tokens.Held, error) {
	held, err := a.take(ctx)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, updateTimeout)
	defer cancel()
	if err := session.Update(ctx, github.TokenFile(held.Value())); err != nil {
		return nil, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.receipt.Refreshed++
	a.setExpiry(held)
	a.x.log.Info("fresh GitHub token", "expires", held.Expires)
	return held, nil
}
