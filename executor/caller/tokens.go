package caller

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/base32"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"regexp"
	"strings"
	"time"
)

// A Token is what is known of a token that was made.
type Token struct {
	ID string
	Caller
	Created   time.Time
	CreatedBy string // a principal
	Expires   time.Time
	Revoked   time.Time // zero while it is not
	Used      time.Time // the last time, to the hour; zero for never
}

// The form of a token: a prefix that those who look for leaked secrets can recognise, 130
// random bits, and a checksum, so that what nobody made costs no look-up.
const (
	prefix       = "sallyport_"
	randomLength = 26 // of rand.Text
)

var checksumText = base32.StdEncoding.WithPadding(base32.NoPadding)

func checksum(s string) string {
	return checksumText.EncodeToString(binary.BigEndian.AppendUint32(nil, crc32.ChecksumIEEE([]byte(s))))
}

// newToken makes a token.
func newToken() string {
	s := prefix + rand.Text()
	return s + checksum(s)
}

// wellFormed reports whether a text could be a token that was made.
func wellFormed(token string) bool {
	const n = len(prefix) + randomLength
	return len(token) > n && strings.HasPrefix(token, prefix) && token[n:] == checksum(token[:n])
}

// The bounds of tokens.
const (
	// DefaultLife is how long a token lives where its maker does not say, and MaxLife how
	// long it may.
	DefaultLife = 90 * 24 * time.Hour
	MaxLife     = 366 * 24 * time.Hour
	// MaxTokens is how many good ones a tenant may have.
	MaxTokens = 1000
	// keptFor is how long an ended token is listed.
	keptFor = 90 * 24 * time.Hour
)

var principalForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._@+-]{0,99}$`)

// CheckPrincipal says what is wrong with a principal's name.
func CheckPrincipal(name string) error {
	switch {
	case !principalForm.MatchString(name):
		return fmt.Errorf("%.64q is not a name of a principal: it is of ASCII letters, digits and . _ @ + -, begins with a letter or digit, and has at most 100", name)
	case name == operator:
		return fmt.Errorf("%q is who has the operator's own token; choose another name", name)
	}
	return nil
}

// ErrTooMany says that a tenant has as many tokens as it may.
var ErrTooMany = fmt.Errorf("there are %d tokens, which is the most; revoke those that nobody uses", MaxTokens)

// Make makes a token for a caller, whose name, tenant and rights are right. The text of
// the token is kept nowhere.
func (t *Tokens) Make(ctx context.Context, c Caller, by string, expires time.Time) (Token, string, error) {
	text, now := newToken(), time.Now()
	made := Token{ID: strings.ToLower(rand.Text()[:16]), Caller: c, Created: now, CreatedBy: by, Expires: expires}
	shown := digestOf(text)
	err := t.inTransaction(ctx, func(tx *sql.Tx) error {
		past := now.Add(-keptFor).UnixNano()
		if _, err := tx.ExecContext(ctx, "DELETE FROM token WHERE expires < ? OR revoked BETWEEN 1 AND ?", past, past); err != nil {
			return err
		}
		good := 0
		row := tx.QueryRowContext(ctx, "SELECT count(*) FROM token WHERE tenant = ? AND revoked = 0 AND expires > ?", c.Tenant, now.UnixNano())
		if err := row.Scan(&good); err != nil {
			return err
		}
		if good >= MaxTokens {
			return ErrTooMany
		}
		_, err := tx.ExecContext(ctx, "INSERT INTO token (digest, "+columns+") VALUES (?, ?, ?, ?, ?, ?, ?, ?, 0, 0)",
			shown[:], made.ID, c.Tenant, c.Principal, strings.Join(c.Rights.Words(), " "), now.UnixNano(), by, expires.UnixNano())
		return err
	})
	if err != nil {
		return Token{}, "", fmt.Errorf("make a token: %w", err)
	}
	return made, text, nil
}

// List returns the tokens that a caller sees, the newest first, with those that ended of
// late.
func (t *Tokens) List(ctx context.Context, by Caller) ([]Token, error) {
	rows, err := t.db.QueryContext(ctx, "SELECT "+columns+" FROM token WHERE tenant = ?1 OR ?1 = '"+Everyone+"' ORDER BY created DESC, id", by.Tenant)
	if err != nil {
		return nil, fmt.Errorf("list tokens: %w", err)
	}
	defer rows.Close()
	list := []Token{}
	for rows.Next() {
		found, err := scan(rows)
		if err != nil {
			return nil, fmt.Errorf("list tokens: %w", err)
		}
		list = append(list, found)
	}
	return list, rows.Err()
}

// Revoke ends a token that a caller sees, and the calls under way with it. The error is
// ErrUnknown where there is none.
func (t *Tokens) Revoke(ctx context.Context, by Caller, id string) (Token, error) {
	var found Token
	var shown []byte
	err := t.inTransaction(ctx, func(tx *sql.Tx) (err error) {
		found, err = scan(tx.QueryRowContext(ctx, "SELECT "+columns+" FROM token WHERE id = ?", id))
		if errors.Is(err, sql.ErrNoRows) || err == nil && !by.Sees(found.Tenant) {
			return ErrUnknown
		}
		if err != nil {
			return err
		}
		if found.Revoked.IsZero() {
			found.Revoked = time.Now()
		}
		return tx.QueryRowContext(ctx, "UPDATE token SET revoked = ? WHERE id = ? RETURNING digest", found.Revoked.UnixNano(), id).Scan(&shown)
	})
	if err != nil {
		return Token{}, fmt.Errorf("revoke a token: %w", err)
	}
	t.end(digest(shown), ErrRevoked)
	return found, nil
}

// columns are those of a Token, in the order of scan.
const columns = "id, tenant, principal, rights, created, created_by, expires, revoked, used"

func scan(row interface{ Scan(...any) error }) (Token, error) {
	var t Token
	var rights string
	var created, expires, revoked, used int64
	err := row.Scan(&t.ID, &t.Tenant, &t.Principal, &rights, &created, &t.CreatedBy, &expires, &revoked, &used)
	if err != nil {
		return Token{}, err
	}
	t.Created, t.Expires, t.Revoked, t.Used = at(created), at(expires), at(revoked), at(used)
	t.Rights, err = ParseRights(strings.Fields(rights))
	return t, err
}

// at is a time of the database.
func at(ns int64) time.Time {
	if ns == 0 {
		return time.Time{}
	}
	return time.Unix(0, ns)
}

func (t *Tokens) inTransaction(ctx context.Context, do func(*sql.Tx) error) error {
	tx, err := t.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	if err := do(tx); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}
