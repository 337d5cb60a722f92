package githubauth

import (
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"

	"sallyport/githubauth/plain"

	"github.com/bradleyfalzon/ghinstallation/v2"
	"github.com/golang-jwt/jwt/v4"
)

const (
	maxKeyFile = 64 << 10 // bytes
	minKeyBits = 2048     // what GitHub makes, and NIST SP 800-131A's least
)

// A Signer signs an App's claims. A [Key] does in this process; one that asks
// another process or a key service needs no more than this method.
type Signer = ghinstallation.Signer

// A Key is an App's private key. It signs, and shows itself to nobody.
type Key struct {
	// Warning says that others than the file's owner may read it, "" where not.
	Warning string

	// sign keeps the key in a closure, out of the reach of printers.
	sign func(jwt.Claims) (string, error)
}

// LoadKey reads an App's private key from a PEM file in PKCS #1, as GitHub gives
// it, or PKCS #8. It must be RSA of at least 2048 bits.
func LoadKey(path string) (*Key, error) {
	text, warning, err := readSecret(path, maxKeyFile)
	if err != nil {
		return nil, fmt.Errorf("read the App's private key: %w", err)
	}
	defer clear(text)
	key, err := parseKey(text)
	if err != nil {
		return nil, fmt.Errorf("read the App's private key from %s: %w", path, err)
	}
	signer := ghinstallation.NewRSASigner(jwt.SigningMethodRS256, key)
	return &Key{Warning: warning, sign: signer.Sign}, nil
}

// ReadPEM reads the file of an App's private key for a run that may have it, and
// checks that it is one. Whoever holds it can do all that the App can.
func ReadPEM(path string) ([]byte, error) {
	text, _, err := readSecret(path, maxKeyFile)
	if err != nil {
		return nil, fmt.Errorf("read the App's private key: %w", err)
	}
	if _, err := parseKey(text); err != nil {
		clear(text)
		return nil, fmt.Errorf("read the App's private key from %s: %w", path, err)
	}
	return text, nil
}

// parseKey reports what is wrong in words of its own: the errors of parsers may
// quote what they read.
func parseKey(text []byte) (*rsa.PrivateKey, error) {
	block, rest := pem.Decode(text)
	if block == nil {
		return nil, errors.New("it is no PEM: GitHub gives the key as a .pem file, to be used as it is")
	}
	defer clear(block.Bytes)
	if next, _ := pem.Decode(rest); next != nil {
		return nil, errors.New("it holds more than one PEM block: keep the private key alone in its file")
	}
	var key any
	var err error
	switch block.Type {
	case "RSA PRIVATE KEY":
		key, err = x509.ParsePKCS1PrivateKey(block.Bytes)
	case "PRIVATE KEY":
		key, err = x509.ParsePKCS8PrivateKey(block.Bytes)
	default:
		return nil, fmt.Errorf("it is a PEM of %q, not of a private key without a passphrase", plain.Line(block.Type))
	}
	if err != nil {
		return nil, errors.New("the PEM does not hold a whole private key")
	}
	k, ok := key.(*rsa.PrivateKey)
	if !ok {
		return nil, errors.New("it is not an RSA key, which is what GitHub Apps have")
	}
	if bits := k.N.BitLen(); bits < minKeyBits {
		return nil, fmt.Errorf("the key has %d bits: GitHub's have 2048, and fewer are too weak", bits)
	}
	return k, nil
}

// readSecret reads a small regular file, and says who else may read it.
func readSecret(path string, most int64) (text []byte, warning string, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, "", err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, "", err
	}
	if !info.Mode().IsRegular() {
		return nil, "", &fs.PathError{Op: "read", Path: path, Err: errors.New("is not a regular file")}
	}
	if mode := info.Mode().Perm(); mode&0o077 != 0 {
		warning = fmt.Sprintf("%s has mode %04o: others than its owner may read or change it; chmod 0400 %s", path, mode, path)
	}
	text, err = io.ReadAll(io.LimitReader(f, most+1))
	if err == nil && int64(len(text)) > most {
		clear(text)
		err = &fs.PathError{Op: "read", Path: path, Err: fmt.Errorf("is longer than %d bytes", most)}
	}
	if err != nil {
		return nil, "", err
	}
	return text, warning, nil
}

// Sign implements Signer: RS256.
func (k *Key) Sign(claims jwt.Claims) (string, error) {
	if k == nil || k.sign == nil {
		return "", errors.New("there is no private key")
	}
	token, err := k.sign(claims)
	if err != nil {
		return "", errors.New("the private key did not sign")
	}
	return token, nil
}

// String never shows the key.
func (k *Key) String() string { return "GitHub App key [redacted]" }

// GoString is String.
func (k *Key) GoString() string { return k.String() }

// LogValue is String.
func (k *Key) LogValue() slog.Value { return slog.StringValue(k.String()) }

// MarshalText is String.
func (k *Key) MarshalText() ([]byte, error) { return []byte(k.String()), nil }
