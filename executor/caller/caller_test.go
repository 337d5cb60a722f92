package caller_test

import (
	"testing"

	"sallyport/executor/caller"
)

func TestTokens(t *testing.T) {
	const token = "a-token-of-the-tests"
	var tokens caller.Tokens
	reader := caller.Caller{Tenant: "team", Principal: "reader", Rights: caller.Read}
	for token, c := range map[string]caller.Caller{token: caller.Operator(), "the-token-of-a-reader": reader} {
		if err := tokens.Add(token, c); err != nil {
			t.Fatal(err)
		}
	}
	if got, ok := tokens.Caller("the-token-of-a-reader"); !ok || got != reader {
		t.Errorf("a reader's token: %+v, %t", got, ok)
	}
	if got, ok := tokens.Caller(token); !ok || got != caller.Operator() || !got.May(caller.Run|caller.Read|caller.Operate) {
		t.Errorf("the operator's token: %+v, %t", got, ok)
	}
	for _, shown := range []string{"", "a-token-of-the-test", token + "s", "A-TOKEN-OF-THE-TESTS"} {
		if got, ok := tokens.Caller(shown); ok || got != (caller.Caller{}) {
			t.Errorf("%q: %+v, %t", shown, got, ok)
		}
	}
	if got, ok := new(caller.Tokens).Caller(""); ok {
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
	} {
		if got := tt.c.May(tt.asks); got != tt.want {
			t.Errorf("%+v may %b: %t", tt.c, tt.asks, got)
		}
	}
}
