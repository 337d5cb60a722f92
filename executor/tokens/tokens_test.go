package tokens_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"sallyport/executor/tokens"
	"sallyport/githubauth"
	"sallyport/githubauth/scope"
)

// An issuer plays GitHub as the keeper sees it; package githubauth is tested
// against GitHub's protocol.
type issuer struct {
	mu    sync.Mutex
	alive map[string]bool
	made  int
	fail  error // Revoke returns it
	tries int
	plain bool            // tokens are not downscoped
	stuck bool            // Revoke waits for the end of its context
	once  map[string]bool // tokens whose next Revoke fails
}

func newIssuer() *issuer { return &issuer{alive: map[string]bool{}} }

func (i *issuer) Mint(context.Context, scope.Grant) (githubauth.Token, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.made++
	value := fmt.Sprintf("ghs_token-number-%04d", i.made)
	i.alive[value] = true
	t := githubauth.NewToken(value)
	t.Downscoped = !i.plain
	t.Expires = time.Now().Add(time.Hour)
	return t, nil
}

func (i *issuer) Revoke(ctx context.Context, token string) error {
	i.mu.Lock()
	stuck := i.stuck
	i.mu.Unlock()
	if stuck {
		<-ctx.Done()
		return ctx.Err()
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.tries++
	if i.fail != nil {
		return i.fail
	}
	if i.once[token] {
		delete(i.once, token)
		return errors.New("no connection, this once")
	}
	delete(i.alive, token)
	return nil
}

func (i *issuer) Identity(context.Context, githubauth.Token) (githubauth.Identity, error) {
	return githubauth.Identity{}, nil
}

func (i *issuer) set(fail error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.fail = fail
}

func (i *issuer) hang() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.stuck = true
}

// failOnce has the next revocation of each token that lives fail.
func (i *issuer) failOnce() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.once = maps.Clone(i.alive)
}

func (i *issuer) living() int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return len(i.alive)
}

func (i *issuer) tried() int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.tries
}

func open(t *testing.T, dir string, i *issuer, log *strings.Builder) *tokens.Keeper {
	t.Helper()
	return openAs(t, dir, i, own, log)
}

// own is where the tokens of these tests are from.
var own = tokens.Origin{Source: "app", API: "https://api.github.com/"}

func openAs(t *testing.T, dir string, i tokens.Issuer, origin tokens.Origin, log *strings.Builder) *tokens.Keeper {
	t.Helper()
	k, err := tokens.Open(dir, i, origin, slog.New(slog.NewTextHandler(log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { k.Close() })
	return k
}

func records(t *testing.T, dir string) []string {
	t.Helper()
	list, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func TestTakeAndRevoke(t *testing.T) {
	dir, i, log := t.TempDir(), newIssuer(), new(strings.Builder)
	k := open(t, dir, i, log)
	held, err := k.Take(t.Context(), "run1", scope.Grant{})
	if err != nil {
		t.Fatal(err)
	}
	left := records(t, dir)
	if len(left) != 1 {
		t.Fatalf("written down: %v", left)
	}
	if info, err := os.Stat(left[0]); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	if err := held.Revoke(t.Context()); err != nil || i.living() != 0 {
		t.Errorf("%v, %d tokens live", err, i.living())
	}
	if left := records(t, dir); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
	if strings.Contains(fmt.Sprintf("%v %+v %#v", held, held, held), "token-number") {
		t.Error("a held token prints its value")
	}

	i.plain = true
	held, err = k.Take(t.Context(), "run2", scope.Grant{})
	if err != nil || len(records(t, dir)) != 0 {
		t.Errorf("a static token was written down: %v, %v", records(t, dir), err)
	}
	if err := held.Revoke(t.Context()); err != nil || i.living() != 1 {
		t.Errorf("a static token was revoked: %v", err)
	}
}

// TestKilled: what an executor leaves behind is revoked by the next one, and
// what the next one holds meanwhile is not.
func TestKilled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir, i, log := t.TempDir(), newIssuer(), new(strings.Builder)
		first := open(t, dir, i, log)
		for n := range 3 {
			if _, err := first.Take(t.Context(), fmt.Sprint("run", n), scope.Grant{}); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.WriteFile(filepath.Join(dir, "cut.json"), []byte(`{"run":"x","tok`), 0o600); err != nil {
			t.Fatal(err)
		}
		i.set(errors.New("no connection"))

		next := open(t, dir, i, log)
		mine, err := next.Take(t.Context(), "run9", scope.Grant{})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); next.Run(ctx) }()
		synctest.Wait()
		if i.living() != 4 || len(records(t, dir)) != 4 {
			t.Errorf("without a connection: %d live, %v", i.living(), records(t, dir))
		}
		i.set(nil)
		time.Sleep(time.Minute)
		synctest.Wait()
		if i.living() != 1 || len(records(t, dir)) != 1 {
			t.Errorf("after it is back: %d live, %v", i.living(), records(t, dir))
		}
		tried := i.tried()
		time.Sleep(time.Hour)
		if i.tried() != tried {
			t.Errorf("%d attempts although nothing was left", i.tried()-tried)
		}

		// A revocation that fails at the end of a run is tried again.
		i.set(errors.New("no connection"))
		if err := mine.Revoke(t.Context()); err == nil {
			t.Error("a failure was not told")
		}
		i.set(nil)
		time.Sleep(time.Minute)
		if i.living() != 0 || len(records(t, dir)) != 0 {
			t.Errorf("after a failure: %d live, %v", i.living(), records(t, dir))
		}
		cancel()
		<-done
		if strings.Contains(log.String(), "token-number") {
			t.Errorf("a token is in the log: %s", log)
		}
	})
}

// TestExpired: a token that has expired is nothing to ask GitHub about.
func TestExpired(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir, i, log := t.TempDir(), newIssuer(), new(strings.Builder)
		k := open(t, dir, i, log)
		if _, err := k.Take(t.Context(), "run", scope.Grant{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Hour)
		next := open(t, dir, i, log)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); next.Run(ctx) }()
		synctest.Wait()
		if i.tried() != 0 || len(records(t, dir)) != 0 {
			t.Errorf("%d attempts, left %v", i.tried(), records(t, dir))
		}
		cancel()
		<-done
	})
}

// TestNotWritten: a token that cannot be written down is not used.
func TestNotWritten(t *testing.T) {
	dir, i, log := t.TempDir(), newIssuer(), new(strings.Builder)
	k := open(t, dir, i, log)
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if _, err := k.Take(t.Context(), "run", scope.Grant{}); err == nil || i.living() != 0 {
		t.Errorf("%v, %d tokens live", err, i.living())
	}
}
