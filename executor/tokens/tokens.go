// Package tokens keeps the GitHub tokens of runs. Each is written down before it
// is used and struck off once it is revoked, so that none outlives its run, not
// even where the executor is killed: the next one finds what was written down.
//
// A token that GitHub made in the moment of the kill, before it was written down, is
// the exception; it expires within the hour and nobody has it.
package tokens

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"

	"sallyport/githubauth"
)

// An Issuer gives and ends tokens; *githubauth.App and *githubauth.Static are.
type Issuer interface {
	Mint(ctx context.Context, g githubauth.Grant) (githubauth.Token, error)
	Revoke(ctx context.Context, token string) error
	Identity(ctx context.Context, t githubauth.Token) (githubauth.Identity, error)
	Hosts() githubauth.Hosts
}

// A Keeper keeps tokens in a directory of its own. It is safe for concurrent use.
type Keeper struct {
	Issuer
	root *os.Root
	log  *slog.Logger
	wake chan struct{} // a record has lost its owner

	mu   sync.Mutex // guards held
	held map[string]bool
}

// A record is what is written down of a token.
type record struct {
	Run     string    `json:"run"`
	Token   string    `json:"token"`
	Expires time.Time `json:"expires"`
}

const suffix = ".json"

// Open makes a Keeper of a directory, which it makes if need be and which nobody
// else may use. Run must follow.
func Open(dir string, issuer Issuer, log *slog.Logger) (*Keeper, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the directory of tokens: %w", err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("open the directory of tokens: %w", err)
	}
	return &Keeper{Issuer: issuer, root: root, log: log, wake: make(chan struct{}, 1), held: map[string]bool{}}, nil
}

// Close closes the directory.
func (k *Keeper) Close() error { return k.root.Close() }

// A Held is a token that a run has. Its owner must revoke it.
type Held struct {
	githubauth.Token
	keeper *Keeper
	name   string // of the record; empty where there is none
}

// Take mints a token for a run and writes it down. The error is a
// *githubauth.Error where GitHub gave none.
func (k *Keeper) Take(ctx context.Context, run string, g githubauth.Grant) (*Held, error) {
	token, err := k.Mint(ctx, g)
	if err != nil {
		return nil, err
	}
	h := &Held{Token: token, keeper: k}
	if !token.Downscoped { // somebody else's, which we do not end
		return h, nil
	}
	h.name = run + "." + strings.ToLower(rand.Text()) + suffix
	if err := k.write(h.name, record{Run: run, Token: token.Value(), Expires: token.Expires}); err != nil {
		ctx := context.WithoutCancel(ctx)
		return nil, errors.Join(fmt.Errorf("write the token down: %w", err), k.Issuer.Revoke(ctx, token.Value()))
	}
	return h, nil
}

func (k *Keeper) write(name string, r record) error {
	data, err := json.Marshal(r)
	if err != nil {
		return err
	}
	k.mu.Lock()
	k.held[name] = true
	k.mu.Unlock()
	err = k.create(name, data)
	if err != nil {
		k.forget(name)
	}
	return err
}

// create writes a file whole, or not at all.
func (k *Keeper) create(name string, data []byte) error {
	f, err := k.root.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		k.root.Remove(name) // the first error is the one that counts
	}
	return err
}

func (k *Keeper) forget(name string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.held, name)
}

// Revoke ends the token and strikes it off. Where that fails the Keeper goes on
// trying until the token expires.
func (h *Held) Revoke(ctx context.Context) error {
	if h.name == "" {
		return nil
	}
	k := h.keeper
	defer k.forget(h.name)
	if err := k.Issuer.Revoke(ctx, h.Value()); err != nil {
		select {
		case k.wake <- struct{}{}:
		default:
		}
		return err
	}
	return k.strike(h.name)
}

func (k *Keeper) strike(name string) error {
	if err := k.root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("strike a token off: %w", err)
	}
	return nil
}

// The pauses between two attempts to revoke what nobody holds.
const (
	firstPause = 5 * time.Second
	lastPause  = 5 * time.Minute
)

// Run revokes the tokens that nobody holds, those of an executor that was killed
// first of all, until ctx ends.
func (k *Keeper) Run(ctx context.Context) {
	pause := firstPause
	for {
		timer := time.NewTimer(pause)
		if k.sweep(ctx) == 0 {
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

// sweep tries to revoke each token that nobody holds and returns how many are
// left.
func (k *Keeper) sweep(ctx context.Context) (left int) {
	entries, err := fs.ReadDir(k.root.FS(), ".")
	if err != nil {
		k.log.Error("the tokens of earlier runs could not be looked at", "error", err)
		return 1
	}
	for _, e := range entries {
		if name := e.Name(); strings.HasSuffix(name, suffix) && !k.isHeld(name) && ctx.Err() == nil {
			if err := k.end(ctx, name); err != nil {
				k.log.Warn("a token of an earlier run could not be revoked yet", "record", name, "error", err)
				left++
			}
		}
	}
	return left
}

func (k *Keeper) isHeld(name string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.held[name]
}

// end revokes the token of one record. One that has expired, or a record that was
// cut when the executor was killed, is struck off.
func (k *Keeper) end(ctx context.Context, name string) error {
	data, err := k.root.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var r record
	switch err := json.Unmarshal(data, &r); {
	case err != nil || r.Token == "":
		k.log.Error("the record of a token cannot be read; the token lives until it expires, within the hour", "record", name)
	case time.Now().Before(r.Expires.Add(expirySlack)):
		if err := k.Issuer.Revoke(ctx, r.Token); err != nil {
			return err
		}
		k.log.Info("revoked the token of a run that is over", "run", r.Run)
	}
	return k.strike(name)
}

// expirySlack is how far this machine's clock may be ahead of GitHub's.
const expirySlack = 10 * time.Minute
