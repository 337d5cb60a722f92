// Package tokens keeps the GitHub tokens of runs. Each is written down before it
// is used and struck off once it is revoked, so that none outlives its run, not
// even where the executor is killed: the next one finds what was written down.
//
// A token that GitHub made in the moment of the kill, before it was written down, is
// the exception; it expires within the hour and nobody has it. One of another GitHub,
// or of another way to get tokens, than the Keeper's own is left alone and told of.
package tokens

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"sallyport/githubauth"
	"sallyport/githubauth/scope"
)

// An Issuer gives and ends tokens; *githubauth.App and *githubauth.Static are.
type Issuer interface {
	Mint(ctx context.Context, g scope.Grant) (githubauth.Token, error)
	Revoke(ctx context.Context, token string) error
	Identity(ctx context.Context, t githubauth.Token) (githubauth.Identity, error)
}

// An Origin says where tokens come from. One is sent to the GitHub that it is
// from, and to no other.
type Origin struct {
	// Source is how they come: api.SourceApp or api.SourceStatic.
	Source string `json:"source"`
	// API is the base of the API that gave them.
	API string `json:"api"`
}

// A Keeper keeps tokens in a directory of its own. It is safe for concurrent use.
type Keeper struct {
	Issuer
	origin Origin
	root   *os.Root
	log    *slog.Logger
	wake   chan struct{} // a record has lost its owner

	mu   sync.Mutex // guards what follows
	held map[string]bool
	told map[string]bool // records that are not ours, of which the log tells
}

// Open makes a Keeper of a directory, which it makes if need be and which nobody
// else may use. Without an issuer it can tell of the tokens there and no more.
// First and Run must follow.
func Open(dir string, issuer Issuer, origin Origin, log *slog.Logger) (*Keeper, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the directory of tokens: %w", err)
	}
	parent, err := os.Open(filepath.Dir(dir))
	if err == nil {
		err = errors.Join(parent.Sync(), parent.Close())
	}
	if err != nil {
		return nil, fmt.Errorf("make the directory of tokens last: %w", err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("open the directory of tokens: %w", err)
	}
	origin.API = strings.TrimSuffix(origin.API, "/")
	return &Keeper{
		Issuer: issuer, origin: origin, root: root, log: log,
		wake: make(chan struct{}, 1), held: map[string]bool{}, told: map[string]bool{},
	}, nil
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
// *rest.Error where GitHub gave none.
func (k *Keeper) Take(ctx context.Context, run string, g scope.Grant) (*Held, error) {
	token, err := k.Mint(ctx, g)
	if err != nil {
		return nil, err
	}
	h := &Held{Token: token, keeper: k}
	if !token.Downscoped { // somebody else's, which we do not end
		return h, nil
	}
	h.name = run + "." + strings.ToLower(rand.Text()) + suffix
	if err := k.write(h.name, record{Origin: k.origin, Run: run, Token: token.Value(), Expires: token.Expires}); err != nil {
		ctx := context.WithoutCancel(ctx)
		return nil, errors.Join(fmt.Errorf("write the token down: %w", err), k.Issuer.Revoke(ctx, token.Value()))
	}
	return h, nil
}

// Revoke ends the token and strikes it off. Where that fails the Keeper goes on
// trying until the token expires.
func (h *Held) Revoke(ctx context.Context) error {
	if h.name == "" {
		return nil
	}
	k := h.keeper
	err := k.Issuer.Revoke(ctx, h.Value())
	if err == nil {
		err = k.strike(h.name)
	}
	k.forget(h.name)
	if err != nil {
		select { // once nobody holds it, or Run would pass it over
		case k.wake <- struct{}{}:
		default:
		}
	}
	return err
}

func (k *Keeper) hold(name string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.held[name] = true
}

func (k *Keeper) forget(name string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.held, name)
}

func (k *Keeper) isHeld(name string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.held[name]
}
