package audit

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/mod/sumdb/tlog"
)

// exportFormat names the format of an export: lines of JSON, a header and then a line for
// each record. The bytes of a line are in their one form, so that none can be changed.
const exportFormat = "https://sallyport.org/audit/export/v1"

// A header is the first line of an export.
type header struct {
	Format     string `json:"format"`
	Records    int64  `json:"records"`    // lines that follow; the log's size where it is whole
	Checkpoint string `json:"checkpoint"` // the newest
}

// An exported record is a line of an export. Where not all of the log is there, Proof
// leads from the record to the checkpoint's root.
type exported struct {
	Index    int64            `json:"index"`
	Proof    tlog.RecordProof `json:"proof,omitempty"`
	Envelope json.RawMessage  `json:"envelope"`
}

// Export writes the log in dir, or, where want is not nil, the records that it wants and
// those of the keys. It takes no lock, and no private key: what is appended meanwhile is
// left out. It fails where the log is not the one of its last checkpoint.
func Export(w io.Writer, dir string, want func(Record) bool) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return fmt.Errorf("export the audit log: %w", err)
	}
	defer root.Close()
	if err := export(w, root, want); err != nil {
		return fmt.Errorf("export the audit log %s: %w", dir, err)
	}
	return nil
}

// errEnough ends a walk over the records.
var errEnough = errors.New("enough")

func export(w io.Writer, root *os.Root, want func(Record) bool) error {
	hashes, text, chosen := stored{}, "", map[int64]bool{}
	err := records(root, func(rec line) error {
		text = rec.Checkpoint
		if want != nil && wanted(rec.Envelope, want) {
			chosen[rec.Index] = true
		}
		_, err := hashes.add(rec.Index, tlog.RecordHash(rec.Envelope))
		return err
	})
	if err != nil {
		return err
	}
	if text == "" {
		return errors.New("it has no records")
	}
	c, err := parseCheckpoint(text)
	if err != nil {
		return err
	}
	if sum, err := tlog.TreeHash(c.tree.N, hashes); err != nil || sum != c.tree.Hash {
		return errors.Join(errors.New("its records are not those of its last checkpoint"), err)
	}
	n := c.tree.N
	whole := want == nil || int64(len(chosen)) == n
	if !whole {
		n = int64(len(chosen))
	}
	b := bufio.NewWriter(w)
	if err := put(b, header{exportFormat, n, text}); err != nil {
		return err
	}
	err = records(root, func(rec line) error {
		if rec.Index == c.tree.N {
			return errEnough
		}
		out := exported{Index: rec.Index, Envelope: rec.Envelope}
		if !whole {
			if !chosen[rec.Index] {
				return nil
			}
			var err error
			if out.Proof, err = tlog.ProveRecord(c.tree.N, rec.Index, hashes); err != nil {
				return err
			}
		}
		return put(b, out)
	})
	if err != nil && !errors.Is(err, errEnough) {
		return err
	}
	return b.Flush()
}

func put(w io.Writer, v any) error {
	text, err := encodeLine(v)
	if err == nil {
		_, err = w.Write(text)
	}
	return err
}

// wanted reports whether a record goes into an export: one of a key does always, a decision
// about an approval with the whole log alone.
func wanted(envelope []byte, want func(Record) bool) bool {
	_, s, err := unseal(envelope)
	if err != nil || s.PredicateType == TypeKey {
		return true // whatever it is, whoever verifies shall see it
	}
	if s.PredicateType == TypeApproval {
		return false
	}
	r, err := s.Run()
	return err != nil || want(r)
}
