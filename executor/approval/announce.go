package approval

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"sallyport/executor/api"
)

// A Poster sends a message to whoever shall know of pending approvals; see package webhook.
type Poster interface {
	Post(ctx context.Context, id string, at time.Time, body []byte) error
}

// delays are the times from one attempt to announce an approval to the next, as the
// Standard Webhooks specification advises: three days in all.
var delays = []time.Duration{
	5 * time.Second, 5 * time.Minute, 30 * time.Minute, 2 * time.Hour, 5 * time.Hour,
	10 * time.Hour, 14 * time.Hour, 20 * time.Hour, 24 * time.Hour,
}

// pause is the longest time for which Announce does not look.
const pause = time.Minute

// An announcement is the body of a message.
type announcement struct {
	Type      string            `json:"type"`
	Timestamp time.Time         `json:"timestamp"`
	Data      api.ApprovalEvent `json:"data"`
}

// Announce posts each pending approval, those of before it was called as well, until ctx
// ends. What fails is tried again, ten times in all, also by a process that comes later.
func (k *Keeper) Announce(ctx context.Context, to Poster, log *slog.Logger) {
	for ctx.Err() == nil {
		changed := k.next()
		wait, err := k.announceNext(ctx, to, log)
		if err != nil && ctx.Err() == nil {
			log.Error("approvals cannot be announced", "error", err)
			wait = pause
		}
		select {
		case <-ctx.Done():
		case <-time.After(min(wait, pause)):
		case <-changed:
		}
	}
}

// announceNext posts the approval that is due, and says how long to wait for the next one.
func (k *Keeper) announceNext(ctx context.Context, to Poster, log *slog.Logger) (time.Duration, error) {
	var seq, attempts, due int64
	err := k.DB.QueryRowContext(ctx, "SELECT seq, attempts, due FROM approval_delivery ORDER BY due LIMIT 1").Scan(&seq, &attempts, &due)
	if errors.Is(err, sql.ErrNoRows) {
		return pause, nil
	}
	now := k.Now()
	if wait := time.Unix(0, due).Sub(now); err != nil || wait > 0 {
		return wait, err
	}
	steps, err := k.steps(ctx, "t.seq = ?", seq)
	if err != nil || len(steps) == 0 {
		return pause, err
	}
	ev := steps[0]
	body, err := json.Marshal(announcement{"approval.pending", ev.Time, ev})
	if err != nil {
		return pause, err
	}
	if err := to.Post(ctx, fmt.Sprintf("approval_%d", seq), now, body); err != nil {
		return 0, k.postpone(ctx, ev, attempts, err, log)
	}
	_, err = k.DB.ExecContext(ctx, "DELETE FROM approval_delivery WHERE seq = ?", seq)
	return 0, err
}

// postpone has an announcement that failed be tried again, if that makes sense.
func (k *Keeper) postpone(ctx context.Context, ev api.ApprovalEvent, attempts int64, why error, log *slog.Logger) error {
	if ctx.Err() != nil {
		return nil
	}
	if attempts == int64(len(delays)) {
		log.Error("a pending approval was not announced", "approval", ev.ApprovalID, "attempts", attempts+1, "error", why)
		_, err := k.DB.ExecContext(ctx, "DELETE FROM approval_delivery WHERE seq = ?", ev.Seq)
		return err
	}
	next := k.Now().Add(delays[attempts])
	log.Warn("a pending approval could not be announced yet", "approval", ev.ApprovalID, "attempts", attempts+1, "next", next.UTC(), "error", why)
	_, err := k.DB.ExecContext(ctx, "UPDATE approval_delivery SET attempts = attempts + 1, due = ? WHERE seq = ?", next.UnixNano(), ev.Seq)
	return err
}
