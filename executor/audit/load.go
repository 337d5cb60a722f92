package audit

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
)

// namePrefix begins the name of every log; what follows is of its first key.
const namePrefix = "sallyport.org/audit/"

func nameOf(first PublicKey) string {
	sum := sha256.Sum256(first.der())
	return namePrefix + hex.EncodeToString(sum[:8])
}

// A checkpoint is a tree and the name of the log, as a signed note: c2sp.org/tlog-checkpoint.
type checkpoint struct {
	name string
	tree tlog.Tree
}

func (c checkpoint) text() string {
	return fmt.Sprintf("%s\n%d\n%s\n", c.name, c.tree.N, c.tree.Hash)
}

func (c checkpoint) sign(key *signer) (string, error) {
	text, err := note.Sign(&note.Note{Text: c.text()}, noteSigner{*key, c.name})
	return string(text), err
}

// parseCheckpoint reads a checkpoint without its signature.
func parseCheckpoint(text string) (checkpoint, error) {
	lines := strings.SplitN(text, "\n", 4)
	if len(lines) < 4 {
		return checkpoint{}, errors.New("the checkpoint is no checkpoint")
	}
	n, err := strconv.ParseInt(lines[1], 10, 64)
	if err != nil || n < 1 {
		return checkpoint{}, errors.New("the checkpoint has no size")
	}
	hash, err := tlog.ParseHash(lines[2])
	if err != nil {
		return checkpoint{}, fmt.Errorf("the checkpoint's hash: %w", err)
	}
	c := checkpoint{lines[0], tlog.Tree{N: n, Hash: hash}}
	if !strings.HasPrefix(text, c.text()+"\n") {
		return checkpoint{}, errors.New("the checkpoint is not in its one form")
	}
	return c, nil
}

// openCheckpoint reads a checkpoint that one key, and nobody else, has signed.
func openCheckpoint(text string, key PublicKey) (checkpoint, error) {
	c, err := parseCheckpoint(text)
	if err != nil {
		return c, err
	}
	v, err := noteVerifier(c.name, key)
	if err != nil {
		return c, fmt.Errorf("the checkpoint's name %q: %w", c.name, err)
	}
	n, err := note.Open([]byte(text), note.VerifierList(v))
	if err != nil {
		return c, fmt.Errorf("the checkpoint's signature: %w", err)
	}
	// A signature in base64 can be written in several ways; ours is one of them.
	raw, err := base64.StdEncoding.DecodeString(n.Sigs[0].Base64)
	if err != nil || len(n.Sigs)+len(n.UnverifiedSigs) != 1 || n.Text != c.text() ||
		text != c.text()+"\n— "+c.name+" "+base64.StdEncoding.EncodeToString(raw)+"\n" {
		return c, errors.New("the checkpoint is not in its one form")
	}
	return c, nil
}

// load reads the state of the log from its files. The caller has the lock.
func (l *Log) load() (err error) {
	l.size = -1
	defer func() {
		if err != nil {
			l.size = -1 // so that nothing is appended to what was not understood
		}
	}()
	key, err := loadKey(l.root, keyFile)
	if err != nil {
		return err
	}
	next, err := loadKey(l.root, nextFile)
	if err != nil {
		return err
	}
	last, err := l.openLast()
	switch {
	case err != nil:
		return err
	case last == nil:
		return l.begin(key)
	case key == nil:
		return fmt.Errorf("the key %s is gone: bring it back, or move %s away and verify it with the public key; a new log and key are made then", l.path(keyFile), l.root.Name())
	}
	c, err := openCheckpoint(last.Checkpoint, key.public())
	if err != nil && next != nil { // died between the record of a key and its being put in place
		if c, err = openCheckpoint(last.Checkpoint, next.public()); err == nil {
			key, err = next, l.promote()
		}
	} else if next != nil { // died before that record
		err = l.root.Remove(nextFile)
	}
	if err != nil {
		return fmt.Errorf("the last record, %d, is not of the key %s: %w", last.Index, l.path(keyFile), err)
	}
	if c.tree.N != last.Index+1 {
		return fmt.Errorf("record %d has the checkpoint of record %d", last.Index, c.tree.N-1)
	}
	l.key, l.name, l.tree = key, c.name, c.tree
	return l.loadEdge(tlog.RecordHash(last.Envelope))
}

// begin begins the log, with the record of its key.
func (l *Log) begin(key *signer) error {
	if key == nil {
		var err error
		if key, err = makeKey(l.root, keyFile); err != nil {
			return err
		}
	}
	l.key, l.name, l.tree, l.edge = key, nameOf(key.public()), tlog.Tree{}, stored{}
	return l.introduce(key, nil)
}

// openLast opens the file with the last record, cuts what was not written whole, and
// returns that record; nil where there is none.
func (l *Log) openLast() (*line, error) {
	if l.file != nil {
		l.file.Close() // all of it is on disk
		l.file = nil
	}
	files, err := recordsFiles(l.root)
	if err != nil {
		return nil, err
	}
	for i := len(files) - 1; i >= 0; i-- {
		f, lines, size, err := l.cut(files[i])
		if err != nil {
			return nil, err
		}
		if l.file == nil {
			l.file, l.size = f, size
		} else if err := f.Close(); err != nil {
			return nil, err
		}
		if n := len(lines); n > 0 {
			last, err := parseLine(lines[n-1], int64(i)*perFile+int64(n)-1)
			return &last, err
		}
	}
	return nil, nil
}

// cut opens a file of records and cuts what was not written whole.
func (l *Log) cut(name string) (f *os.File, lines [][]byte, size int64, err error) {
	f, err = l.root.OpenFile(name, os.O_RDWR|os.O_APPEND, 0)
	if err != nil {
		return nil, nil, 0, err
	}
	data, err := l.root.ReadFile(name)
	if err != nil {
		return nil, nil, 0, errors.Join(err, f.Close())
	}
	lines, size = wholeLines(data)
	if size < int64(len(data)) {
		if err := errors.Join(f.Truncate(size), f.Sync()); err != nil {
			return nil, nil, 0, errors.Join(err, f.Close())
		}
	}
	return f, lines, size, nil
}

// loadEdge reads the edge of the tree from the tiles, or, where these do not lead to
// its root, makes them again from the records.
func (l *Log) loadEdge(leaf tlog.Hash) error {
	indexes := append(edge(l.tree.N), tlog.StoredHashIndex(0, l.tree.N-1))
	hashes, err := tlog.TileHashReader(l.tree, tiles{l.root}).ReadHashes(indexes)
	if err != nil || hashes[len(hashes)-1] != leaf {
		return l.rebuild()
	}
	l.edge = stored{}
	for i, index := range indexes[:len(indexes)-1] {
		l.edge[index] = hashes[i]
	}
	return nil
}

// rebuild makes the tiles from the records, which must be those of the tree.
func (l *Log) rebuild() error {
	if err := l.root.RemoveAll(tilesDir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	all := stored{}
	err := records(l.root, func(rec line) error {
		hashes, err := all.add(rec.Index, tlog.RecordHash(rec.Envelope))
		if err == nil {
			err = tiles{l.root}.write(rec.Index, hashes)
		}
		all.trim(rec.Index + 1)
		return err
	})
	if err != nil {
		return err
	}
	root, err := tlog.TreeHash(l.tree.N, all)
	if err != nil || root != l.tree.Hash {
		return errors.Join(fmt.Errorf("the records in %s are not those of their last checkpoint: one was changed, put in or taken out; bring back what was there, or move %s away and keep it for whoever looks into it", l.path(recordsDir), l.root.Name()), err)
	}
	l.edge = all
	return nil
}

// CurrentKey is the public key that signs the log in dir, which it reads without a lock.
func CurrentKey(dir string) (PublicKey, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return PublicKey{}, fmt.Errorf("read the audit log: %w", err)
	}
	defer root.Close()
	var keys []PublicKey
	err = records(root, func(rec line) error {
		_, s, err := unseal(rec.Envelope)
		if err != nil || s.PredicateType != TypeKey {
			return err
		}
		key, err := s.key()
		keys = append(keys, key)
		return err
	})
	if err == nil && len(keys) == 0 {
		err = fs.ErrNotExist
	}
	if err != nil {
		return PublicKey{}, fmt.Errorf("read the audit log %s: %w", dir, err)
	}
	return keys[len(keys)-1], nil
}
