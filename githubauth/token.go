package githubauth

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"sallyport/githubauth/scope"
)

// A Token is a credential that GitHub gave, and what it is good for. However it is
// printed, logged or encoded, its value is not shown; Value is the one way to it.
type Token struct {
	// Expires is when GitHub stops taking it, by GitHub's clock; zero where that is
	// not known, as for a static token.
	Expires time.Time
	// Lifetime is how long it was good for when it came, whatever this machine's
	// clock says: timers go by it. Zero where it is not known.
	Lifetime     time.Duration
	Permissions  scope.Permissions // as GitHub gave them; nil for a static token
	Owner        string            // as GitHub spells it
	Repositories []string          // names without the owner, sorted
	// Downscoped says that the token can do no more than Permissions on no more than
	// Repositories. A static token is not.
	Downscoped bool

	// value is behind a pointer: a Token in a private field of another struct is
	// printed by fmt without regard for the methods below.
	value *string
}

// NewToken returns a token of which no more is known than its value.
func NewToken(value string) Token { return Token{value: &value} }

// Value is the credential itself, "" for the zero Token. It must go nowhere but
// into requests to GitHub and the run's own secrets.
func (t Token) Value() string {
	if t.value == nil {
		return ""
	}
	return *t.value
}

// isValue reports whether s can be a credential: it goes into header fields and
// lines of text. GitHub's are between 40 and some 600 characters.
func isValue(s string) bool {
	return 8 <= len(s) && len(s) <= 4096 && strings.IndexFunc(s, func(r rune) bool { return r < '!' || r > '~' }) < 0
}

// String tells what the token is for, without its value.
func (t Token) String() string {
	if t.value == nil {
		return "no GitHub token"
	}
	s := "GitHub token for " + t.Owner + "/{" + strings.Join(t.Repositories, ",") + "}"
	if t.Permissions != nil {
		s += " (" + t.Permissions.String() + ")"
	}
	if !t.Expires.IsZero() {
		s += " until " + t.Expires.UTC().Format(time.RFC3339)
	}
	return s
}

// GoString is String.
func (t Token) GoString() string { return t.String() }

// Format prints String for every verb.
func (t Token) Format(f fmt.State, _ rune) { fmt.Fprint(f, t.String()) }

// LogValue is String.
func (t Token) LogValue() slog.Value { return slog.StringValue(t.String()) }

// MarshalJSON is String.
func (t Token) MarshalJSON() ([]byte, error) { return json.Marshal(t.String()) }
