package audit

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestKeyFile refuses a key that others may have read, or that is not the log's.
//
// oracle: the log opens once its key is what it was
func TestKeyFile(t *testing.T) {
	dir := t.TempDir()
	l := open(t, dir)
	appendAll(t, l, 0, 1)
	path := filepath.Join(dir, keyFile)
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode() != 0o600 {
		t.Errorf("the key has the mode %v, %v", info.Mode(), err)
	}
	foreign := t.TempDir()
	open(t, foreign)
	if err := os.Link(filepath.Join(foreign, keyFile), filepath.Join(foreign, "real.pem")); err != nil {
		t.Fatal(err)
	}
	write := func(text []byte) error { return os.WriteFile(path, text, 0o600) }
	for name, spoil := range map[string]func() error{
		"readable for its group": func() error { return os.Chmod(path, 0o640) },
		"writable for all":       func() error { return os.Chmod(path, 0o602) },
		"a program":              func() error { return os.Chmod(path, 0o700) },
		"another user's":         func() error { return os.Chown(path, 4711, 4711) },
		"gone":                   func() error { return os.Remove(path) },
		"empty":                  func() error { return write(nil) },
		"cut":                    func() error { return write(good[:40]) },
		"another log's":          func() error { return os.Rename(filepath.Join(foreign, keyFile), path) },
		"a link that leads out": func() error {
			os.Remove(path)
			return os.Symlink(filepath.Join(foreign, "real.pem"), path)
		},
		"of another kind": func() error { return write(ecdsaKey(t)) },
		"a public key":    func() error { return write([]byte(l.Key().PEM())) },
	} {
		if err := spoil(); err != nil {
			t.Fatalf("%s: %v (this test is for root)", name, err)
		}
		if l, err := Open(dir); err == nil {
			t.Errorf("%s: the log opens", name)
			l.Close()
		} else if !strings.Contains(err.Error(), "key") {
			t.Errorf("%s: %v", name, err)
		}
		os.Remove(path)
		if err := write(good); err != nil {
			t.Fatal(err)
		}
		open(t, dir)
	}
	if _, names := runs(t, dir, Trust{Keys: []PublicKey{l.Key()}}); !slices.Equal(names, numbered(1)) {
		t.Errorf("%v", names)
	}
}

func ecdsaKey(t *testing.T) []byte {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: privateBlock, Bytes: der})
}

// TestRotate changes the key; whoever has the public half of any verifies all.
func TestRotate(t *testing.T) {
	dir := t.TempDir()
	l := open(t, dir)
	keys := []PublicKey{l.Key()}
	for i := range 3 {
		appendAll(t, l, i, i+1)
		key, err := l.Rotate()
		if err != nil {
			t.Fatal(err)
		}
		keys = append(keys, key)
	}
	appendAll(t, l, 3, 4)
	for i, key := range keys {
		report, names := runs(t, dir, Trust{Keys: []PublicKey{key}})
		if !slices.Equal(names, numbered(4)) || len(report.Keys) != 4 || report.Keys[i] != key.Fingerprint() {
			t.Errorf("with the key %d: %+v", i, report)
		}
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.pem*"))
	if err != nil || len(files) != 1 {
		t.Errorf("of the keys there is left %v, %v", files, err)
	}
}

// TestRotateCut ends a change of the key after each of its steps.
func TestRotateCut(t *testing.T) {
	for name, until := range map[string]func(l *Log) error{
		"made": func(l *Log) error { _, err := makeKey(l.root, nextFile); return err },
		"recorded": func(l *Log) error {
			next, err := makeKey(l.root, nextFile)
			if err != nil {
				return err
			}
			return l.introduce(next, l.key)
		},
	} {
		dir := t.TempDir()
		l := open(t, dir)
		first := l.Key()
		appendAll(t, l, 0, 1)
		if err := until(l); err != nil {
			t.Fatal(err)
		}
		for i := range 2 {
			l = open(t, dir)
			appendAll(t, l, i+1, i+2)
		}
		if changed := !l.Key().equal(first); changed != (name == "recorded") {
			t.Errorf("%s: the key has changed: %t", name, changed)
		}
		for _, key := range []PublicKey{first, l.Key()} {
			if _, names := runs(t, dir, Trust{Keys: []PublicKey{key}}); !slices.Equal(names, numbered(3)) {
				t.Errorf("%s: %v", name, names)
			}
		}
		if _, err := os.Stat(filepath.Join(dir, nextFile)); err == nil {
			t.Errorf("%s: a key that is not in force is left", name)
		}
	}
}

func TestParsePublicKeys(t *testing.T) {
	a, b := open(t, t.TempDir()).Key(), open(t, t.TempDir()).Key()
	keys, err := ParsePublicKeys([]byte("the keys:\n" + a.PEM() + b.PEM()))
	if err != nil || len(keys) != 2 || !keys[0].equal(a) || !keys[1].equal(b) {
		t.Errorf("%v, %v", keys, err)
	}
	for _, bad := range []string{"", "no key", string(ecdsaKey(t)), a.PEM()[:60], a.PEM() + string(ecdsaKey(t))} {
		if keys, err := ParsePublicKeys([]byte(bad)); err == nil {
			t.Errorf("%q is read as %v", bad, keys)
		}
	}
}
