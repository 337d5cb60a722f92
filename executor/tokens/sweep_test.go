package tokens_test

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"sallyport/executor/tokens"
	"sallyport/githubauth/scope"
)

// TestFirst: the first look says of each run what came of its tokens, and does not
// take longer than it may though GitHub does not answer.
func TestFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir, i, log := t.TempDir(), newIssuer(), new(strings.Builder)
		killed := open(t, dir, i, log)
		take := func(run string) {
			t.Helper()
			if _, err := killed.Take(t.Context(), run, scope.Grant{}); err != nil {
				t.Fatal(err)
			}
		}
		if got := open(t, dir, i, log).First(t.Context()); len(got) != 0 || i.tried() != 0 {
			t.Errorf("of an empty directory: %v, %d attempts", got, i.tried())
		}
		take("expired")
		time.Sleep(2 * time.Hour)
		take("revoked")
		take("revoked")
		if err := os.WriteFile(filepath.Join(dir, "unreadable.x.json"), []byte(`{"run":"unr`), 0o600); err != nil {
			t.Fatal(err)
		}
		got := fates(open(t, dir, i, log).First(t.Context()))
		want := map[string]string{"expired": "expired", "revoked": "revoked revoked", "unreadable": "unreadable"}
		if !maps.Equal(got, want) || len(records(t, dir)) != 0 {
			t.Errorf("%v, want %v; left %v", got, want, records(t, dir))
		}

		const many = 40
		for n := range many {
			take(fmt.Sprint("left", n))
		}
		i.hang()
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		began := time.Now()
		endings := open(t, dir, i, log).First(ctx)
		if took := time.Since(began); took != 5*time.Second {
			t.Errorf("it took %v", took)
		}
		if got := fates(endings); len(got) != many || got["left0"] != "left" || endings["left0"][0].Err == nil || len(records(t, dir)) != many {
			t.Errorf("%v; left %d", got, len(records(t, dir)))
		}
	})
}

func fates(runs map[string][]tokens.Ending) map[string]string {
	all := map[string]string{}
	for run, endings := range runs {
		var words []string
		for _, e := range endings {
			words = append(words, string(e.Fate))
		}
		all[run] = strings.Join(words, " ")
	}
	return all
}

// TestRevokeFailsOnce: of a revocation that fails once, at whatever moment, the keeper
// knows at once that it is its own to do again.
func TestRevokeFailsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir, i, log := t.TempDir(), newIssuer(), new(strings.Builder)
		k := open(t, dir, i, log)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); k.Run(ctx) }()
		for n := range 100 {
			var held []*tokens.Held
			for range 20 {
				h, err := k.Take(ctx, "run", scope.Grant{})
				if err != nil {
					t.Fatal(err)
				}
				held = append(held, h)
			}
			i.failOnce()
			synctest.Wait() // Run has nothing to do
			var ends sync.WaitGroup
			for _, h := range held {
				ends.Go(func() {
					if err := h.Revoke(ctx); err == nil {
						t.Error("a failure was not told")
					}
				})
			}
			ends.Wait()
			time.Sleep(time.Minute)
			synctest.Wait()
			if i.living() != 0 {
				t.Fatalf("in round %d %d tokens live on", n, i.living())
			}
		}
		cancel()
		<-done
	})
}

// TestForeign: a token is sent to its own GitHub and struck off by its own kind of
// executor, whatever the settings have become since.
func TestForeign(t *testing.T) {
	for name, origin := range map[string]tokens.Origin{
		"another GitHub": {Source: "app", API: "https://github.example/api/v3/"},
		"a static token": {Source: "static", API: "https://api.github.com/"},
		"no GitHub":      {},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				dir, i, log := t.TempDir(), newIssuer(), new(strings.Builder)
				if _, err := open(t, dir, i, log).Take(t.Context(), "run", scope.Grant{}); err != nil {
					t.Fatal(err)
				}
				var issuer tokens.Issuer
				if origin.Source != "" {
					issuer = i
				}
				k := openAs(t, dir, issuer, origin, log)
				for range 2 {
					if got := fates(k.First(t.Context())); got["run"] != "foreign" || i.tried() != 0 || len(records(t, dir)) != 1 {
						t.Errorf("%v, %d attempts, left %v", got, i.tried(), records(t, dir))
					}
				}
				if text := log.String(); strings.Count(text, "cannot be revoked with the settings") != 1 || strings.Contains(text, "token-number") {
					t.Errorf("the log says %s", text)
				}
				same := own
				same.API = strings.TrimSuffix(own.API, "/")
				if got := fates(openAs(t, dir, i, same, log).First(t.Context())); got["run"] != "revoked" || i.living() != 0 {
					t.Errorf("control: %v, %d live", got, i.living())
				}
				if _, err := open(t, dir, i, log).Take(t.Context(), "run", scope.Grant{}); err != nil {
					t.Fatal(err)
				}
				time.Sleep(2 * time.Hour)
				if got := fates(k.First(t.Context())); got["run"] != "expired" || len(records(t, dir)) != 0 {
					t.Errorf("once it has expired: %v, left %v", got, records(t, dir))
				}
			})
		})
	}
}
