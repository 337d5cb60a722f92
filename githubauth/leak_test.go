package githubauth_test

import (
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"testing"

	"sallyport/githubauth"
	"sallyport/githubauth/githubtest"
	"sallyport/githubauth/scope"
)

// noSecrets wants that nothing of tokens, JWTs and keys is in err or in the logs,
// however they are printed.
func noSecrets(t testing.TB, b *bench, err error, more ...string) {
	t.Helper()
	secrets := slices.Concat([]string{githubtest.Mark, githubtest.PAT}, keyForms(), b.github.Sent(), b.github.Tokens(), more)
	searchFor(t, secrets, printed(t, err, b.app)+b.logs.String())
}

// keyForms is the App's key, as far as it is secret, in the forms that it has.
func keyForms() []string {
	key := githubtest.Keys().App
	der := x509.MarshalPKCS1PrivateKey(key)
	half := der[len(der)/2:] // behind what is public
	return []string{string(half), base64.StdEncoding.EncodeToString(half), key.D.String(), key.D.Text(16), key.Primes[0].String()}
}

// printed is v in every way in which Go prints, logs and encodes.
func printed(t testing.TB, values ...any) string {
	t.Helper()
	var out strings.Builder
	logger := slog.New(slog.NewTextHandler(&out, nil))
	jsonLogger := slog.New(slog.NewJSONHandler(&out, nil))
	for _, v := range values {
		type hidden struct{ inside any }
		for _, form := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
			fmt.Fprintf(&out, form+"\n", v)
			fmt.Fprintf(&out, form+"\n", []any{v, &v, hidden{v}, struct{ Shown any }{v}, map[string]any{"k": v}})
		}
		logger.Info("text", "value", v)
		jsonLogger.Info("json", "value", v)
		if text, err := json.Marshal(v); err == nil {
			out.Write(text)
		}
	}
	return out.String()
}

// searchFor finds a secret, any 31 bytes of it, and those in hexadecimal and, wherever
// they begin in a longer text, in base64.
func searchFor(t testing.TB, secrets []string, text string) {
	t.Helper()
	seek := func(part string) {
		t.Helper()
		forms := []string{part, fmt.Sprintf("%x", part)}
		for from := range min(3, len(part)-2) {
			whole := (len(part) - from) / 3 * 3 // the last letter of the rest depends on what follows
			if form := base64.StdEncoding.EncodeToString([]byte(part[from : from+whole])); len(form) >= 8 {
				forms = append(forms, form)
			}
		}
		for _, form := range forms {
			if i := strings.Index(text, form); i >= 0 {
				t.Errorf("%q is in the output: ...%.160q...", form, text[max(0, i-60):])
				return
			}
		}
	}
	for _, secret := range secrets {
		for from := 0; from+16 <= len(secret); from += 16 {
			seek(secret[from : from+16])
		}
		if len(secret) < 16 {
			seek(secret)
		}
	}
}

// TestNothingLeaks prints all that there is, in every way in which Go prints, logs
// and encodes.
//
// probe: G10
// oracle: a search of all that was printed for 31 bytes in a row of any secret, plain, in
// hexadecimal and in base64
func TestNothingLeaks(t *testing.T) {
	b := newBench(t, nil)
	path := githubtest.KeyFile(t)
	key, err := githubauth.LoadKey(path)
	if err != nil {
		t.Fatal(err)
	}
	text, err := githubauth.ReadPEM(path)
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(text)
	g := grant(t, "repo-write", "Acme", "shop")
	token, err := b.app.Mint(t.Context(), g)
	if err != nil {
		t.Fatal(err)
	}
	static, patFile := newStatic(t, b, githubtest.PAT+"\n")
	pat, err := static.Mint(t.Context(), g)
	if err != nil {
		t.Fatal(err)
	}
	type run struct {
		token  githubauth.Token // in a field that fmt calls no methods of
		Shown  githubauth.Token
		signer githubauth.Signer
		Signer githubauth.Signer
	}
	all := run{token, pat, key, key}
	out := printed(t, token, &token, pat, key, *key, all, &all, b.app, static, g, scope.DefaultProfiles(),
		githubauth.Config{Signer: key}, githubauth.StaticConfig{TokenFile: patFile}, b.app.Revoke(t.Context(), token.Value()))
	secrets := slices.Concat([]string{token.Value(), githubtest.PAT, githubtest.Mark, string(block.Bytes), string(text[:200])}, keyForms(), b.github.Sent())
	searchFor(t, secrets, out+b.logs.String())

	// The search finds what is there.
	if !strings.Contains(out, "GitHub token for Acme/{shop}") || !strings.Contains(out, "redacted") {
		t.Errorf("the token and the key are not in the output at all: %.2000s", out)
	}
	for name, form := range map[string]string{
		"in part":        "x" + token.Value()[8:] + "y",
		"in hexadecimal": fmt.Sprintf("%x", "Bearer "+token.Value()),
		"in base64":      base64.StdEncoding.EncodeToString([]byte("x-access-token:" + token.Value() + "\n")),
		"in base64, off": base64.StdEncoding.EncodeToString([]byte("Bearer: " + token.Value() + "\n")),
	} {
		var found testing.T
		searchFor(&found, []string{token.Value()}, form)
		if !found.Failed() {
			t.Errorf("a token is not found %s", name)
		}
	}
}

func TestToken(t *testing.T) {
	var none githubauth.Token
	if none.Value() != "" || none.String() != "no GitHub token" {
		t.Errorf("the zero token is %q, %s", none.Value(), none)
	}
	token := githubauth.NewToken("ghs_x")
	if token.Value() != "ghs_x" || token.Downscoped {
		t.Errorf("%q, %v", token.Value(), token)
	}
}

// newStatic is a static token in a file.
func newStatic(t *testing.T, b *bench, text string) (*githubauth.Static, string) {
	t.Helper()
	path := t.TempDir() + "/token"
	if err := os.WriteFile(path, []byte(text), 0o400); err != nil {
		t.Fatal(err)
	}
	c := githubauth.StaticConfig{TokenFile: path, Roots: githubtest.Keys().Roots, Dial: b.dial}
	s, err := githubauth.NewStatic(c)
	if err != nil {
		t.Fatal(err)
	}
	return s, path
}
