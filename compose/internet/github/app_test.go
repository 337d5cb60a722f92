package github

import (
	"bytes"
	"crypto/rand"
	"crypto/rsa"
	"errors"
	"maps"
	"strings"
	"testing"
	"time"
)

func TestJWT(t *testing.T) {
	s, c := start(t)
	stranger, err := rsa.GenerateKey(rand.Reader, keyBits)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	with := func(change claims) claims {
		all := goodClaims()
		maps.Copy(all, change)
		maps.DeleteFunc(all, func(_ string, v any) bool { return v == nil })
		return all
	}
	good := sign(t, s.key, "RS256", goodClaims())
	for _, one := range []struct {
		name, token string
		status      int
		message     string
	}{
		{"good", good, 200, ""},
		{"the id in digits", sign(t, s.key, "RS256", with(claims{"iss": "4242"})), 200, ""},
		{"the client id", sign(t, s.key, "RS256", with(claims{"iss": ClientID})), 200, ""},
		{"nothing", "", 401, "A JSON web token could not be decoded"},
		{"no token", "x", 401, "A JSON web token could not be decoded"},
		{"two parts", good[:strings.LastIndex(good, ".")], 401, "A JSON web token could not be decoded"},
		{"another key", sign(t, stranger, "RS256", goodClaims()), 401, "A JSON web token could not be decoded"},
		{"another algorithm", sign(t, s.key, "HS256", goodClaims()), 401, "A JSON web token could not be decoded"},
		{"no algorithm", sign(t, s.key, "none", goodClaims()), 401, "A JSON web token could not be decoded"},
		{"no issuer", sign(t, s.key, "RS256", with(claims{"iss": nil})), 401, "Missing 'issuer' claim ('iss') in assertion"},
		{"another App", sign(t, s.key, "RS256", with(claims{"iss": 1})), 404, "Integration not found"},
		{"no time of issue", sign(t, s.key, "RS256", with(claims{"iat": nil})), 401, "Missing 'issued at' claim ('iat') in assertion"},
		{"issued in the future", sign(t, s.key, "RS256", with(claims{"iat": now.Add(time.Minute).Unix()})), 401,
			"'Issued at' claim ('iat') must be an Integer representing the time that the assertion was issued"},
		{"no expiry", sign(t, s.key, "RS256", with(claims{"exp": nil})), 401, "Missing 'expiration time' claim ('exp') in assertion"},
		{"expired", sign(t, s.key, "RS256", with(claims{"exp": now.Add(-time.Second).Unix()})), 401,
			"'Expiration time' claim ('exp') must be a numeric value representing the future time at which the assertion expires"},
		{"expires too late", sign(t, s.key, "RS256", with(claims{"exp": now.Add(11 * time.Minute).Unix()})), 401,
			"'Expiration time' claim ('exp') is too far in the future"},
	} {
		a := ask(t, c, "GET", "/app", one.token, nil)
		if a.status != one.status || a.message() != one.message {
			t.Errorf("%s: %d %q, want %d %q", one.name, a.status, a.message(), one.status, one.message)
		}
		if one.status == 200 && a.body["slug"] != Slug {
			t.Errorf("%s: the App is %s", one.name, a.text)
		}
	}
}

func TestKey(t *testing.T) {
	s, _ := start(t)
	again, err := New(t.Context(), Config{Dir: t.TempDir(), Key: s.KeyPEM()})
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(again.KeyPEM(), s.KeyPEM()) {
		t.Error("the key that was given is not the key")
	}
	if _, err := New(t.Context(), Config{Dir: t.TempDir(), Key: []byte("no key")}); err == nil {
		t.Error("what is no key was taken for one")
	}
}

// FuzzJWT holds that nothing but the App's own token proves the App.
func FuzzJWT(f *testing.F) {
	key, err := rsa.GenerateKey(rand.Reader, keyBits)
	if err != nil {
		f.Fatal(err)
	}
	f.Add("a.b.c")
	f.Add("eyJhbGciOiJub25lIn0.eyJpc3MiOjQyNDJ9.")
	f.Add("eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOjQyNDIsImlhdCI6MSwiZXhwIjoyfQ.AA")
	f.Fuzz(func(t *testing.T, raw string) {
		err := checkJWT(raw, &key.PublicKey, time.Unix(1, 0))
		var e *apiError
		if !errors.As(err, &e) {
			t.Errorf("%q: %v", raw, err)
		}
	})
}

func TestInstallations(t *testing.T) {
	s, c := start(t)
	app := sign(t, s.key, "RS256", goodClaims())
	for path, want := range map[string]float64{
		"/orgs/acme/installation": 51001, "/orgs/ACME/installation": 51001, "/users/solo/installation": 51002,
		"/repos/acme/app/installation": 51001, "/repos/solo/notes/installation": 51002, "/app/installations/51001": 51001,
		"/orgs/solo/installation": 0, "/orgs/other/installation": 0, "/users/other/installation": 0, "/users/nobody/installation": 0,
		"/repos/acme/vault/installation": 0, "/repos/other/open/installation": 0, "/repos/acme/none/installation": 0, "/app/installations/1": 0,
	} {
		a := ask(t, c, "GET", path, app, nil)
		if id, _ := a.body["id"].(float64); id != want || (want == 0) != (a.status == 404) {
			t.Errorf("%s: %d %s, want %v", path, a.status, a.text, want)
		}
		if a := ask(t, c, "GET", path, "", nil); a.status != 401 {
			t.Errorf("%s without a token: %d", path, a.status)
		}
	}
	if a := ask(t, c, "GET", "/app/installations", app, nil); a.status != 200 || strings.Count(a.text, "access_tokens_url") != 2 {
		t.Errorf("the list is %d %s", a.status, a.text)
	}
	a := ask(t, c, "GET", "/users/"+Slug+"%5Bbot%5D", "", nil)
	if a.status != 200 || a.body["type"] != "Bot" || a.body["id"] != float64(botID) {
		t.Errorf("the bot is %d %s", a.status, a.text)
	}
}
