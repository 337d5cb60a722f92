package tokens

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"strings"
	"sync"
	"time"
)

// A Fate is what came of a token that nobody holds any more.
type Fate string

// The fates.
const (
	Revoked    Fate = "revoked"
	Expired    Fate = "expired"    // by itself, before anybody came to revoke it
	Left       Fate = "left"       // it could not be revoked yet; Run tries again
	Foreign    Fate = "foreign"    // of another Origin: left to expire
	Unreadable Fate = "unreadable" // its record was cut; it expires within the hour
)

// An Ending is what came of one token.
type Ending struct {
	Fate    Fate
	Expires time.Time // zero where the record does not say
	Err     error     // why the token is Left
}

// First revokes what an executor that was killed has left, as far as that goes
// until ctx ends, and returns what came of it by run. A run of which it says nothing
// has no token that lives. Run does the rest.
func (k *Keeper) First(ctx context.Context) map[string][]Ending { return k.sweep(ctx) }

// The pauses between two attempts to revoke what nobody holds.
const (
	firstPause = 5 * time.Second
	lastPause  = 5 * time.Minute
)

// Run revokes the tokens that nobody holds until ctx ends.
func (k *Keeper) Run(ctx context.Context) {
	pause := firstPause
	for {
		timer := time.NewTimer(pause)
		if !anyLeft(k.sweep(ctx)) {
			pause = firstPause
			timer.Stop() // nothing to do until somebody fails
		} else {
			pause = min(2*pause, lastPause)
		}
		select {
		case <-timer.C:
		case <-k.wake:
			timer.Stop()
		case <-ctx.Done():
			timer.Stop()
			return
		}
	}
}

func anyLeft(runs map[string][]Ending) bool {
	for _, endings := range runs {
		for _, e := range endings {
			if e.Fate == Left {
				return true
			}
		}
	}
	return false
}

// sweepers is how many tokens are revoked at once.
const sweepers = 8

// sweep tries to end each token that nobody holds and returns what came of it, by
// run.
func (k *Keeper) sweep(ctx context.Context) map[string][]Ending {
	entries, err := fs.ReadDir(k.root.FS(), ".")
	if err != nil {
		k.log.Error("the tokens of earlier runs could not be looked at", "error", err)
		return map[string][]Ending{"": {{Fate: Left, Err: err}}}
	}
	var (
		wg    sync.WaitGroup
		mu    sync.Mutex // guards ended
		ended = map[string][]Ending{}
		slots = make(chan struct{}, sweepers)
	)
	for _, entry := range entries {
		name := entry.Name()
		if !strings.HasSuffix(name, suffix) || k.isHeld(name) {
			continue
		}
		wg.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			run, ending := k.end(ctx, name)
			if ending.Fate == "" {
				return
			}
			mu.Lock()
			defer mu.Unlock()
			ended[run] = append(ended[run], ending)
		})
	}
	wg.Wait()
	return ended
}

// end ends the token of one record, whose run it returns. The Fate is "" where the
// record has gone. One that has expired, or a record that was cut when the executor
// was killed, is struck off.
func (k *Keeper) end(ctx context.Context, name string) (string, Ending) {
	run, _, _ := strings.Cut(name, ".")
	data, err := k.root.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return run, Ending{}
	}
	var r record
	e := Ending{Fate: Revoked}
	switch {
	case err != nil:
	case json.Unmarshal(data, &r) != nil || r.Token == "":
		k.log.Error("the record of a token cannot be read; the token lives until it expires, within the hour", "record", name)
		e.Fate = Unreadable
	case time.Now().After(r.Expires.Add(expirySlack)):
		e.Fate = Expired
	case k.Issuer == nil || r.Origin != k.origin:
		k.tell(name, r)
		return run, Ending{Fate: Foreign, Expires: r.Expires}
	default:
		err = k.Issuer.Revoke(ctx, r.Token)
	}
	if err == nil {
		err = k.strike(name)
	}
	e.Expires = r.Expires
	switch {
	case err != nil:
		k.log.Warn("a token of an earlier run could not be revoked yet", "record", name, "error", err)
		e.Fate, e.Err = Left, err
	case e.Fate == Revoked:
		k.log.Info("revoked the token of a run that is over", "run", run)
	}
	return run, e
}

// tell has the log say, once, that a token is not ours to end.
func (k *Keeper) tell(name string, r record) {
	k.mu.Lock()
	known := k.told[name]
	k.told[name] = true
	k.mu.Unlock()
	if !known {
		k.log.Warn("a token of an earlier run cannot be revoked with the settings as they are now; it lives until it expires",
			"run", r.Run, "source", r.Source, "api", r.API, "expires", r.Expires)
	}
}

// expirySlack is how far this machine's clock may be ahead of GitHub's.
const expirySlack = 10 * time.Minute
