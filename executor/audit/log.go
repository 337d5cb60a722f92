package audit

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	intoto "github.com/in-toto/attestation/go/v1"
	"github.com/secure-systems-lab/go-securesystemslib/dsse"
	"golang.org/x/mod/sumdb/tlog"
)

// payloadType is that of in-toto's Statements.
const payloadType = "application/vnd.in-toto+json"

// MaxStatement is the longest statement, in bytes.
const MaxStatement = 8 << 20

// A Place says where in the log a record stands, and which one it is.
type Place struct {
	Index  int64  `json:"index"`
	SHA256 string `json:"sha256"` // of the envelope, in hexadecimal
}

// A Log is a log that can be appended to. It is safe for concurrent use, also by several
// processes: each holds a lock on its directory while it appends.
type Log struct {
	root *os.Root
	lock *os.File

	mu   sync.Mutex // guards what follows; locked before the file
	key  *signer
	name string // of the log, which begins its checkpoints
	tree tlog.Tree
	edge stored
	file *os.File // where the last record is
	size int64    // of that file; -1 where it may not be what it was
}

// Open opens the log in a directory of its own, with the key that signs it; it makes both
// if there are neither. What a process that died in the middle of Append has left of a
// record is taken away. A log that does not hold what its last checkpoint says, a key that
// is gone, and one that others may have read, are errors.
func Open(dir string) (*Log, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the audit log: %w", err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("open the audit log: %w", err)
	}
	l := &Log{root: root, size: -1}
	err = root.MkdirAll(recordsDir, 0o700)
	if err == nil {
		l.lock, err = root.OpenFile(lockFile, os.O_CREATE|os.O_RDWR, 0o600)
	}
	if err == nil {
		err = errors.Join(syncDir(root, "."), l.locked(func() error { return nil }))
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open the audit log %s: %w", dir, err), l.Close())
	}
	return l, nil
}

// Close gives the files back.
func (l *Log) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	var errs []error
	for _, f := range []*os.File{l.file, l.lock} {
		if f != nil {
			errs = append(errs, f.Close())
		}
	}
	return errors.Join(append(errs, l.root.Close())...)
}

// Key is the public half of the key that signs.
func (l *Log) Key() PublicKey {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.key.public()
}

// Append signs a record and puts it at the end of the log. Once it returns without an
// error the record is on disk. After an error it is not, and Append may be called again.
func (l *Log) Append(r Record) (Place, error) {
	text, err := r.statement()
	if err == nil && len(text) > MaxStatement {
		err = fmt.Errorf("it is longer than %d bytes", MaxStatement)
	}
	if err != nil {
		return Place{}, fmt.Errorf("make the audit record of %s: %w", r.Execution, err)
	}
	var place Place
	err = l.locked(func() error {
		place, err = l.append(text, l.key, l.key)
		return err
	})
	if err != nil {
		return Place{}, fmt.Errorf("append the audit record of %s: %w", r.Execution, err)
	}
	return place, nil
}

// Rotate makes a new key, by which all that follows is signed, and forgets the private
// half of the old one. Both sign the record of the change, so that whoever has the public
// half of either can verify the whole log.
func (l *Log) Rotate() (PublicKey, error) {
	var key PublicKey
	err := l.locked(func() error {
		next, err := makeKey(l.root, nextFile)
		if err != nil {
			return err
		}
		if err := l.introduce(next, l.key); err != nil {
			return err
		}
		l.key, key = next, next.public()
		err = l.promote()
		if err != nil {
			l.size = -1 // the next load puts the key in its place, before another one is made
		}
		return err
	})
	if err != nil {
		return key, fmt.Errorf("rotate the audit key: %w", err)
	}
	return key, nil
}

// promote puts the next key in the place of the key.
func (l *Log) promote() error {
	return errors.Join(l.root.Rename(nextFile, keyFile), syncDir(l.root, "."))
}

// introduce appends the record of a key, which takes the place of old; nil for none.
func (l *Log) introduce(key, old *signer) error {
	r := KeyRecord{Key: key.public().PEM(), Time: time.Now().UTC()}
	by := []dsse.Signer{key}
	if old != nil {
		r.Previous = old.public().Fingerprint()
		by = append(by, old)
	}
	sum := sha256.Sum256(key.public().der())
	text, err := statement(TypeKey, []*intoto.ResourceDescriptor{subject(key.public().Fingerprint(), "sha256", hex.EncodeToString(sum[:]))}, r)
	if err != nil {
		return err
	}
	_, err = l.append(text, key, by...)
	return err
}

// locked calls f while no other process appends, with the state read anew if one has.
func (l *Log) locked(f func() error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := syscall.Flock(int(l.lock.Fd()), syscall.LOCK_EX); err != nil {
		return err
	}
	defer syscall.Flock(int(l.lock.Fd()), syscall.LOCK_UN)
	if !l.current() {
		if err := l.load(); err != nil {
			return err
		}
	}
	return f()
}

// current reports whether the file ends where we left it.
func (l *Log) current() bool {
	if l.size < 0 {
		return false
	}
	info, err := l.file.Stat()
	if err != nil || info.Size() != l.size {
		return false
	}
	// Where our file was full another one may follow it.
	_, err = l.root.Stat(recordsFile(l.tree.N))
	return l.tree.N%perFile != 0 || err != nil
}

// append signs a statement by all of by, and the checkpoint by key, and writes them.
func (l *Log) append(statement []byte, key *signer, by ...dsse.Signer) (Place, error) {
	envelope, err := seal(statement, by...)
	if err != nil {
		return Place{}, err
	}
	n := l.tree.N
	hashes, err := l.edge.add(n, tlog.RecordHash(envelope))
	if err != nil {
		l.size = -1
		return Place{}, err
	}
	root, err := tlog.TreeHash(n+1, l.edge)
	if err == nil {
		err = l.write(line{Index: n, Envelope: envelope}, checkpoint{l.name, tlog.Tree{N: n + 1, Hash: root}}, key)
	}
	if err != nil {
		l.size = -1 // the edge is ahead, and the file may be
		return Place{}, err
	}
	l.tree = tlog.Tree{N: n + 1, Hash: root}
	l.edge.trim(n + 1)
	// The record stands; tiles that are wrong are made again when they are read.
	_ = tiles{l.root}.write(n, hashes)
	sum := sha256.Sum256(envelope)
	return Place{Index: n, SHA256: hex.EncodeToString(sum[:])}, nil
}

// seal puts a statement into an envelope.
func seal(statement []byte, by ...dsse.Signer) ([]byte, error) {
	s, err := dsse.NewEnvelopeSigner(by...)
	if err != nil {
		return nil, err
	}
	envelope, err := s.SignPayload(context.Background(), payloadType, statement)
	if err != nil {
		return nil, err
	}
	return json.Marshal(envelope)
}

// write writes a line, and makes it last. What it leaves of one where it fails is taken
// away, now or by the next load.
func (l *Log) write(rec line, c checkpoint, key *signer) error {
	var err error
	if rec.Checkpoint, err = c.sign(key); err != nil {
		return err
	}
	text, err := encodeLine(rec)
	if err != nil {
		return err
	}
	if err := l.fileOf(rec.Index); err != nil {
		return err
	}
	_, err = l.file.Write(text)
	if err == nil {
		err = l.file.Sync()
	}
	if err != nil {
		return errors.Join(err, l.file.Truncate(l.size), l.file.Sync())
	}
	l.size += int64(len(text))
	return nil
}

// fileOf opens the file that a record belongs to, where that is not the one that is open.
func (l *Log) fileOf(index int64) error {
	if l.file != nil && index%perFile != 0 {
		return nil
	}
	f, err := l.root.OpenFile(recordsFile(index), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	if err := syncDir(l.root, recordsDir); err != nil {
		return errors.Join(err, f.Close())
	}
	if l.file != nil {
		l.file.Close() // all of it is on disk
	}
	l.file, l.size = f, 0
	return nil
}

// path is that of a file, for people.
func (l *Log) path(name string) string { return filepath.Join(l.root.Name(), name) }
