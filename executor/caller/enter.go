package caller

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"time"
)

// MinToken is the fewest characters that a token may have.
const MinToken = 16

// Tokens know callers by the tokens that they show. The zero value knows nobody. It is
// safe for concurrent use once Add and Keep have been called.
type Tokens struct {
	fixed []fixed
	db    *sql.DB // of those that Make made; if nil there are none

	mu    sync.Mutex // guards calls
	calls map[digest]map[*call]bool
}

// A digest is what is known of a token.
type digest [sha256.Size]byte

func digestOf(token string) digest { return sha256.Sum256([]byte(token)) }

// A fixed token is one of the operator's settings, which does not expire.
type fixed struct {
	digest digest
	caller Caller
}

// A call under way has its end.
type call struct{ end context.CancelCauseFunc }

// ErrUnknown says that a token is nobody's, or nobody's any more.
var ErrUnknown = errors.New("the token is not known")

// Add has the token stand for the caller.
func (t *Tokens) Add(token string, c Caller) error {
	if len(token) < MinToken {
		return fmt.Errorf("the token has fewer than %d characters", MinToken)
	}
	t.fixed = append(t.fixed, fixed{digestOf(token), c})
	return nil
}

// Keep has tokens made in the database, and those that were made known.
func (t *Tokens) Keep(db *sql.DB) { t.db = db }

// Enter begins a call with the token that it shows: the context has its caller, and ends
// with ErrRevoked or ErrExpired as soon as the token is good no longer. leave must be
// called at the end of the call. The error is ErrUnknown, or the database's. How long
// it takes says nothing about the tokens that are known.
func (t *Tokens) Enter(ctx context.Context, token string) (_ context.Context, leave func(), err error) {
	shown := digestOf(token)
	for _, k := range t.fixed {
		if subtle.ConstantTimeCompare(shown[:], k.digest[:]) == 1 {
			return With(ctx, k.caller), func() {}, nil
		}
	}
	if t.db == nil || !wellFormed(token) {
		return nil, nil, ErrUnknown
	}
	// First: whoever revokes the token from now on either is seen by the look-up, or
	// finds the call.
	ctx, end := t.open(ctx, shown)
	found, err := t.find(ctx, shown)
	if err != nil {
		end()
		return nil, nil, err
	}
	ctx, stop := context.WithDeadlineCause(With(ctx, found.Caller), found.Expires, ErrExpired)
	return ctx, func() { stop(); end() }, nil
}

// open notes a call under way.
func (t *Tokens) open(ctx context.Context, shown digest) (context.Context, func()) {
	ctx, end := context.WithCancelCause(ctx)
	c := &call{end}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.calls == nil {
		t.calls = map[digest]map[*call]bool{}
	}
	if t.calls[shown] == nil {
		t.calls[shown] = map[*call]bool{}
	}
	t.calls[shown][c] = true
	return ctx, func() { end(nil); t.close(shown, c) }
}

func (t *Tokens) close(shown digest, c *call) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.calls[shown], c)
	if len(t.calls[shown]) == 0 {
		delete(t.calls, shown)
	}
}

// end ends the calls under way with a token.
func (t *Tokens) end(shown digest, cause error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for c := range t.calls[shown] {
		c.end(cause)
	}
}

// usedEvery is how coarsely the last use of a token is kept: not each call shall write.
const usedEvery = time.Hour

// find looks a token up that is good now.
func (t *Tokens) find(ctx context.Context, shown digest) (Token, error) {
	found, err := scan(t.db.QueryRowContext(ctx, "SELECT "+columns+" FROM token WHERE digest = ?", shown[:]))
	now := time.Now()
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return Token{}, ErrUnknown
	case err != nil:
		return Token{}, fmt.Errorf("look up a token: %w", err)
	case !found.Revoked.IsZero() || !now.Before(found.Expires):
		return Token{}, ErrUnknown
	}
	if now.Sub(found.Used) >= usedEvery {
		// Without it the call is as good: a full disk shall keep nobody from looking.
		_, _ = t.db.ExecContext(ctx, "UPDATE token SET used = ? WHERE digest = ?", now.Truncate(usedEvery).UnixNano(), shown[:])
	}
	return found, nil
}
