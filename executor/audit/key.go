package audit

import (
	"context"
	"crypto"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/secure-systems-lab/go-securesystemslib/dsse"
	"golang.org/x/mod/sumdb/note"

	"sallyport/internal/fileowner"
)

// The files of the key in the log's directory. nextFile is there while one takes the
// place of another.
const (
	keyFile  = "key.pem"
	nextFile = "next.pem"
)

// The types of PEM blocks.
const (
	publicBlock  = "PUBLIC KEY"  // SubjectPublicKeyInfo, RFC 5280
	privateBlock = "PRIVATE KEY" // PKCS #8, RFC 5958
)

// A PublicKey checks what a log's key has signed.
type PublicKey struct{ ed25519.PublicKey }

// Fingerprint is that of OpenSSH, such as SHA256:9d0F...; DSSE's libraries know keys by it.
func (k PublicKey) Fingerprint() string {
	id, err := dsse.SHA256KeyID(k.PublicKey)
	if err != nil {
		return ""
	}
	return id
}

// PEM is the key as openssl and cosign read it.
func (k PublicKey) PEM() string {
	return string(pem.EncodeToMemory(&pem.Block{Type: publicBlock, Bytes: k.der()}))
}

func (k PublicKey) der() []byte {
	der, _ := x509.MarshalPKIXPublicKey(k.PublicKey) // fails for other kinds of keys only
	return der
}

func (k PublicKey) equal(other PublicKey) bool { return k.PublicKey.Equal(other.PublicKey) }

// ParsePublicKeys reads the public keys of a PEM file: at least one, and nothing else.
func ParsePublicKeys(text []byte) ([]PublicKey, error) {
	var keys []PublicKey
	for len(text) > 0 {
		block, rest := pem.Decode(text)
		if block == nil {
			break
		}
		if block.Type != publicBlock {
			return nil, fmt.Errorf("a PEM block is %q, not %q", block.Type, publicBlock)
		}
		key, err := parsePublic(block.Bytes)
		if err != nil {
			return nil, err
		}
		keys, text = append(keys, key), rest
	}
	if len(keys) == 0 {
		return nil, fmt.Errorf("there is no PEM block %q", publicBlock)
	}
	return keys, nil
}

func parsePublic(der []byte) (PublicKey, error) {
	parsed, err := x509.ParsePKIXPublicKey(der)
	if err != nil {
		return PublicKey{}, fmt.Errorf("read a public key: %w", err)
	}
	key, ok := parsed.(ed25519.PublicKey)
	if !ok {
		return PublicKey{}, fmt.Errorf("a public key is of the kind %T, not Ed25519", parsed)
	}
	return PublicKey{key}, nil
}

// A verifier is a PublicKey for DSSE's library. It has no KeyID, as our envelopes have
// none: it would be no more than a hint, and verifiers differ in how they compute it.
type verifier struct{ PublicKey }

func (v verifier) KeyID() (string, error)   { return "", nil }
func (v verifier) Public() crypto.PublicKey { return v.PublicKey.PublicKey }

func (v verifier) Verify(_ context.Context, data, sig []byte) error {
	if !ed25519.Verify(v.PublicKey.PublicKey, data, sig) {
		return errors.New("the signature is not of this key")
	}
	return nil
}

// A signer is the private key, for DSSE's library.
type signer struct{ private ed25519.PrivateKey }

func (s signer) public() PublicKey      { return PublicKey{s.private.Public().(ed25519.PublicKey)} }
func (s signer) KeyID() (string, error) { return "", nil }
func (s signer) Sign(_ context.Context, data []byte) ([]byte, error) {
	return ed25519.Sign(s.private, data), nil
}

// A noteSigner signs checkpoints, as the log of that name.
type noteSigner struct {
	signer
	name string
}

func (n noteSigner) Name() string { return n.name }

func (n noteSigner) KeyHash() uint32 {
	v, err := noteVerifier(n.name, n.public())
	if err != nil {
		return 0
	}
	return v.KeyHash()
}

func (n noteSigner) Sign(msg []byte) ([]byte, error) { return ed25519.Sign(n.private, msg), nil }

func noteVerifier(name string, key PublicKey) (note.Verifier, error) {
	text, err := note.NewEd25519VerifierKey(name, key.PublicKey)
	if err != nil {
		return nil, err
	}
	return note.NewVerifier(text)
}

// makeKey makes a key and its file, which is there whole or not at all.
func makeKey(root *os.Root, name string) (*signer, error) {
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, err
	}
	der, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return nil, err
	}
	tmp := name + ".tmp" // one that an interrupted attempt has left was never in force
	if err := root.Remove(tmp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	f, err := root.OpenFile(tmp, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	_, err = f.Write(pem.EncodeToMemory(&pem.Block{Type: privateBlock, Bytes: der}))
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = root.Rename(tmp, name)
	}
	if err = errors.Join(err, syncDir(root, ".")); err != nil {
		return nil, fmt.Errorf("make the audit key: %w", err)
	}
	return &signer{private}, nil
}

// loadKey reads a key, which nobody but its owner may have been able to read or to have
// put there. It returns nil where there is no file.
func loadKey(root *os.Root, name string) (*signer, error) {
	f, err := root.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the audit key: %w", err)
	}
	defer f.Close()
	path := filepath.Join(root.Name(), name)
	if err := private(root, f); err != nil {
		return nil, fmt.Errorf("the audit key %s %w", path, err)
	}
	text, err := io.ReadAll(io.LimitReader(f, 1<<16))
	if err != nil {
		return nil, fmt.Errorf("read the audit key: %w", err)
	}
	block, _ := pem.Decode(text)
	if block == nil || block.Type != privateBlock {
		return nil, fmt.Errorf("the audit key %s holds no PEM block %q", path, privateBlock)
	}
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("the audit key %s: %w", path, err)
	}
	own, ok := key.(ed25519.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("the audit key %s is of the kind %T, not Ed25519", path, key)
	}
	return &signer{own}, nil
}

// private requires a regular file of mode 0600 that belongs to us, to root or to the
// owner of its directory.
func private(root *os.Root, f *os.File) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	dir, err := root.Stat(".")
	if err != nil {
		return err
	}
	owner := fileowner.Of(info).UID
	switch {
	case !info.Mode().IsRegular():
		return errors.New("is no regular file")
	case info.Mode().Perm()&0o177 != 0:
		return fmt.Errorf("has the mode %04o, so that others may have read it: chmod 0600 it, then replace it with sallyport audit rotate", info.Mode().Perm())
	case owner != 0 && owner != os.Geteuid() && owner != fileowner.Of(dir).UID:
		return fmt.Errorf("belongs to the user %d, who is neither root nor the owner of the directory: chown it", owner)
	}
	return nil
}

// syncDir makes what was made or renamed in a directory last.
func syncDir(root *os.Root, name string) error {
	dir, err := root.Open(name)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
