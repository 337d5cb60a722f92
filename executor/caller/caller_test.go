package caller_test

import (
	"context"
	"database/sql"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"sallyport/executor/caller"
	"sallyport/executor/state"
)

// enter is who makes a call with a token.
func enter(t *testing.T, tokens *caller.Tokens, token string) (caller.Caller, bool) {
	t.Helper()
	ctx, leave, err := tokens.Enter(context.Background(), token)
	if errors.Is(err, caller.ErrUnknown) {
		return caller.Caller{}, false
	}
	if err != nil {
		t.Fatal(err)
	}
	defer leave()
	return caller.Of(ctx), true
}

func TestFixedTokens(t *testing.T) {
	const token = "a-token-of-the-tests"
	var tokens caller.Tokens
	reader := caller.Caller{Tenant: "team", Principal: "reader", Rights: caller.Read}
	for token, c := range map[string]caller.Caller{token: caller.Operator(), "the-token-of-a-reader": reader} {
		if err := tokens.Add(token, c); err != nil {
			t.Fatal(err)
		}
	}
	if got, ok := enter(t, &tokens, "the-token-of-a-reader"); !ok || got != reader {
		t.Errorf("a reader's token: %+v, %t", got, ok)
	}
	if got, ok := enter(t, &tokens, token); !ok || got != caller.Operator() || !got.May(caller.Run|caller.Read|caller.Approve|caller.Operate|caller.Service) {
		t.Errorf("the operator's token: %+v, %t", got, ok)
	}
	for _, shown := range []string{"", "a-token-of-the-test", token + "s", "A-TOKEN-OF-THE-TESTS"} {
		if got, ok := enter(t, &tokens, shown); ok {
			t.Errorf("%q: %+v", shown, got)
		}
	}
	if got, ok := enter(t, new(caller.Tokens), ""); ok {
		t.Errorf("no tokens know %+v", got)
	}
	if err := tokens.Add("short", caller.Operator()); err == nil {
		t.Error("a short token was taken")
	}
}

func TestMay(t *testing.T) {
	reader := caller.Caller{Rights: caller.Read}
	for _, tt := range []struct {
		c    caller.Caller
		asks caller.Rights
		want bool
	}{
		{reader, caller.Read, true},
		{reader, caller.Run, false},
		{reader, caller.Read | caller.Run, false},
		{caller.Caller{}, caller.Read, false},
		{caller.Caller{}, 0, true},
		{caller.Caller{Rights: caller.Operate}, caller.Service, true},
		{caller.Caller{Tenant: "team", Rights: caller.Operate}, caller.Service, false},
		{caller.Caller{Tenant: "team", Rights: caller.Operate | caller.Service}, caller.Service, false},
		{caller.Operator().In("team"), caller.Service, false},
	} {
		if got := tt.c.May(tt.asks); got != tt.want {
			t.Errorf("%+v may %b: %t", tt.c, tt.asks, got)
		}
	}
}

func TestParseRights(t *testing.T) {
	if got, err := caller.ParseRights([]string{"operate", "run"}); err != nil || got != caller.Run|caller.Operate || got.String() != "run, operate" {
		t.Errorf("%v, %v", got, err)
	}
	for _, list := range [][]string{nil, {"run", "run"}, {"Run"}, {"service"}, {""}} {
		if got, err := caller.ParseRights(list); err == nil {
			t.Errorf("%q: %v", list, got)
		}
	}
}

// open makes tokens in a database of their own.
func open(t *testing.T) (*caller.Tokens, *sql.DB) {
	t.Helper()
	db, err := state.Open(context.Background(), filepath.Join(t.TempDir(), "state.db"))
	if err != nil {
		t.Fatal(err)
	}
	tokens := new(caller.Tokens)
	tokens.Keep(db)
	return tokens, db
}

var ci = caller.Caller{Tenant: "team", Principal: "ci", Rights: caller.Run | caller.Read}

// TestTokens makes tokens, finds their callers and revokes them. What is kept does not
// have their texts.
//
// probe: T4
// oracle: the same token before
func TestTokens(t *testing.T) {
	tokens, db := open(t)
	defer db.Close()
	ctx, soon := context.Background(), time.Now().Add(time.Hour)
	made, text, err := tokens.Make(ctx, ci, "operator", soon)
	if err != nil || !strings.HasPrefix(text, "sallyport_") || made.Caller != ci {
		t.Fatalf("%+v, %q, %v", made, text, err)
	}
	if got, ok := enter(t, tokens, text); !ok || got != ci {
		t.Fatalf("%+v, %t", got, ok)
	}
	_, other, err := tokens.Make(ctx, caller.Caller{Tenant: "other", Principal: "ci", Rights: caller.Read}, "operator", soon)
	if err != nil {
		t.Fatal(err)
	}
	for _, shown := range []string{text[:len(text)-1], text + "A", strings.ToLower(text), "sallyport_", other[:20] + text[20:]} {
		if got, ok := enter(t, tokens, shown); ok {
			t.Errorf("%q: %+v", shown, got)
		}
	}
	kept := ""
	if err := db.QueryRow("SELECT group_concat(hex(digest) || id || tenant || principal || rights || created_by) FROM token").Scan(&kept); err != nil ||
		strings.Contains(kept, text[10:]) || !strings.Contains(kept, made.ID) {
		t.Errorf("the database has %s, %v", kept, err)
	}
	if list, err := tokens.List(ctx, ci); err != nil || len(list) != 1 || list[0].ID != made.ID || list[0].Used.IsZero() || list[0].CreatedBy != "operator" {
		t.Errorf("the team's: %+v, %v", list, err)
	}
	if list, err := tokens.List(ctx, ci.In(caller.Everyone)); err != nil || len(list) != 2 {
		t.Errorf("all: %+v, %v", list, err)
	}
	if _, err := tokens.Revoke(ctx, ci.In("other"), made.ID); !errors.Is(err, caller.ErrUnknown) {
		t.Errorf("revoked by another tenant: %v", err)
	}
	if _, ok := enter(t, tokens, text); !ok {
		t.Error("another tenant's attempt revoked it")
	}
	revoked, err := tokens.Revoke(ctx, ci, made.ID)
	if err != nil || revoked.Revoked.IsZero() {
		t.Fatalf("%+v, %v", revoked, err)
	}
	if _, ok := enter(t, tokens, text); ok {
		t.Error("a revoked token is good")
	}
	if again, err := tokens.Revoke(ctx, ci, made.ID); err != nil || !again.Revoked.Equal(revoked.Revoked) {
		t.Errorf("once more: %v after %v, %v", again.Revoked, revoked.Revoked, err)
	}
	if _, ok := enter(t, tokens, other); !ok {
		t.Error("another token went with it")
	}
}

// TestTokensEnd has calls under way when their token expires, or is revoked.
//
// probe: T4
// oracle: the same call until then, and one with another token after
func TestTokensEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tokens, db := open(t)
		defer db.Close()
		begin := func(life time.Duration) (caller.Token, string, context.Context) {
			made, text, err := tokens.Make(context.Background(), ci, "operator", time.Now().Add(life))
			if err != nil {
				t.Fatal(err)
			}
			ctx, leave, err := tokens.Enter(context.Background(), text)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(leave)
			return made, text, ctx
		}
		_, expiring, expires := begin(time.Minute)
		made, _, revoked := begin(time.Hour)
		_, _, other := begin(time.Hour)

		time.Sleep(time.Minute - time.Nanosecond)
		if err := caller.Ended(expires); err != nil || expires.Err() != nil {
			t.Errorf("before its end: %v", err)
		}
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		if err := caller.Ended(expires); !errors.Is(err, caller.ErrExpired) {
			t.Errorf("at its end: %v", err)
		}
		if _, ok := enter(t, tokens, expiring); ok {
			t.Error("an expired token is good")
		}
		if caller.Ended(revoked) != nil {
			t.Error("a call ended with another's token")
		}
		if _, err := tokens.Revoke(context.Background(), ci, made.ID); err != nil {
			t.Fatal(err)
		}
		if err := caller.Ended(revoked); !errors.Is(err, caller.ErrRevoked) {
			t.Errorf("once revoked: %v", err)
		}
		if other.Err() != nil {
			t.Errorf("a call with another token: %v", context.Cause(other))
		}
	})
}

// TestTokensAreBounded: a tenant has so many, and those that ended long ago are forgotten.
func TestTokensAreBounded(t *testing.T) {
	tokens, db := open(t)
	defer db.Close()
	ctx, soon := context.Background(), time.Now().Add(time.Hour)
	if _, err := db.Exec(`WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?)
		INSERT INTO token SELECT CAST(i AS BLOB), 'id' || i, 'team', 'ci', 'read', 1, 'operator', ?, 0, 0 FROM n`, caller.MaxTokens, soon.UnixNano()); err != nil {
		t.Fatal(err)
	}
	if _, _, err := tokens.Make(ctx, ci, "operator", soon); !errors.Is(err, caller.ErrTooMany) {
		t.Errorf("one too many: %v", err)
	}
	if _, _, err := tokens.Make(ctx, ci.In("other"), "operator", soon); err != nil {
		t.Errorf("another tenant's: %v", err)
	}
	if _, err := db.Exec("UPDATE token SET revoked = 1 WHERE id = 'id1'"); err != nil {
		t.Fatal(err)
	}
	if _, _, err := tokens.Make(ctx, ci, "operator", soon); err != nil {
		t.Errorf("in the place of a revoked one: %v", err)
	}
	if _, err := tokens.Revoke(ctx, ci, "id1"); !errors.Is(err, caller.ErrUnknown) {
		t.Errorf("one that was revoked in 1970: %v", err)
	}
}
