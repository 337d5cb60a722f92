package audit

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"

	intoto "github.com/in-toto/attestation/go/v1"
	"github.com/secure-systems-lab/go-securesystemslib/dsse"
	"golang.org/x/mod/sumdb/tlog"
)

// maxLine is the longest line of an export, in bytes: a statement in base64, twice.
const maxLine = 4 * MaxStatement

// A Trust is what whoever verifies knows already.
type Trust struct {
	// Keys are public keys of the log's; one of those that ever signed it is enough.
	// With none nothing verifies.
	Keys []PublicKey
	// Since is the header, or the checkpoint, of an earlier export of the same log; it
	// must be the beginning of this one. Nil for none. It takes an export of the whole log.
	Since []byte
	// Places are where results said that their records are. They must be there.
	Places []Place
}

// A Report says what an export is, once it has been verified.
type Report struct {
	Log     string   `json:"log"`
	Size    int64    `json:"size"`    // of the log
	Records int64    `json:"records"` // in the export, those of keys among them
	Keys    []string `json:"keys"`    // fingerprints, the one in force last
}

// An Entry is a record in an export. Statement is its text as it was signed.
type Entry struct {
	Place
	Statement
	Text []byte
}

// Verify checks an export: that every record is signed by the key in force when it was
// written, that each key was introduced by the one before and one of them is trusted, that
// all records stand where they do in the tree of the checkpoint, and that no byte is other
// than the log wrote it. visit, if not nil, gets each record in turn; that is worth
// something only once Verify has returned without an error.
func Verify(r io.Reader, t Trust, visit func(Entry) error) (Report, error) {
	v := &verification{trust: t, leaves: stored{}, in: bufio.NewReaderSize(r, 64<<10), visit: visit, places: slices.Clone(t.Places)}
	if err := v.run(); err != nil {
		return Report{}, fmt.Errorf("does not verify: %w", err)
	}
	report := Report{Log: v.check.name, Size: v.check.tree.N, Records: v.head.Records}
	for _, k := range v.keys {
		report.Keys = append(report.Keys, k.Fingerprint())
	}
	return report, nil
}

// A verification is the state of Verify.
type verification struct {
	trust  Trust
	in     *bufio.Reader
	visit  func(Entry) error
	head   header
	check  checkpoint  // of the head; its signature is checked last, when its key is known
	keys   []PublicKey // of the log, up to the record at hand
	leaves stored      // of a whole log
	places []Place     // not seen yet
	last   int64
}

func (v *verification) run() error {
	if err := v.next(&v.head, "the header"); err != nil {
		return err
	}
	if v.head.Format != exportFormat {
		return fmt.Errorf("the header has the format %q, not %q", v.head.Format, exportFormat)
	}
	var err error
	if v.check, err = parseCheckpoint(v.head.Checkpoint); err != nil {
		return err
	}
	v.last = -1
	for i := range v.head.Records {
		if err := v.record(); err != nil {
			return fmt.Errorf("record %d of %d in the export: %w", i+1, v.head.Records, err)
		}
	}
	if _, err := v.in.ReadByte(); !errors.Is(err, io.EOF) {
		return errors.New("there is more behind its last record")
	}
	return v.finish()
}

// next reads a line, which must be in the form that we write.
func (v *verification) next(into any, what string) error {
	text, err := v.readLine()
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	if again, err := encodeLine(into); err != nil || !bytes.Equal(again, text) {
		return fmt.Errorf("%s is not in its one form", what)
	}
	return nil
}

func (v *verification) readLine() ([]byte, error) {
	var text []byte
	for {
		part, err := v.in.ReadSlice('\n')
		text = append(text, part...)
		switch {
		case err == nil:
			return text, nil
		case errors.Is(err, io.EOF):
			return nil, errors.New("the export is cut off")
		case !errors.Is(err, bufio.ErrBufferFull):
			return nil, err
		case len(text) > maxLine:
			return nil, fmt.Errorf("a line is longer than %d bytes", maxLine)
		}
	}
}

func (v *verification) whole() bool { return v.head.Records == v.check.tree.N }

// record checks the next record, its place and its signatures.
func (v *verification) record() error {
	var rec exported
	if err := v.next(&rec, "the line"); err != nil {
		return err
	}
	if rec.Index <= v.last || v.whole() && rec.Index != v.last+1 {
		return fmt.Errorf("it is number %d of the log, behind number %d", rec.Index, v.last)
	}
	v.last = rec.Index
	if err := v.place(rec); err != nil {
		return err
	}
	s, text, err := v.open(rec)
	if err != nil {
		return err
	}
	sum := sha256.Sum256(rec.Envelope)
	at := Place{rec.Index, hex.EncodeToString(sum[:])}
	v.places = slices.DeleteFunc(v.places, func(p Place) bool { return p == at })
	if v.visit == nil {
		return nil
	}
	return v.visit(Entry{at, s, text})
}

// place checks where in the tree a record is; of a whole log finish does.
func (v *verification) place(rec exported) error {
	leaf := tlog.RecordHash(rec.Envelope)
	if v.whole() {
		if rec.Proof != nil {
			return errors.New("it has a proof in an export of the whole log")
		}
		_, err := v.leaves.add(rec.Index, leaf)
		if v.trust.Since == nil {
			v.leaves.trim(rec.Index + 1)
		}
		return err
	}
	if err := tlog.CheckRecord(rec.Proof, v.check.tree.N, v.check.tree.Hash, rec.Index, leaf); err != nil {
		return fmt.Errorf("it is not number %d of the log: %w", rec.Index, err)
	}
	return nil
}

// open checks the signatures of an envelope, and takes note of a key that it introduces.
func (v *verification) open(rec exported) (Statement, []byte, error) {
	e, s, err := unseal(rec.Envelope)
	if err != nil {
		return s, nil, err
	}
	by := v.keys[max(0, len(v.keys)-1):]
	switch {
	case s.PredicateType == TypeKey:
		key, err := s.key()
		if err != nil {
			return s, nil, err
		}
		v.keys = append(v.keys, key)
		by = v.keys[max(0, len(v.keys)-2):]
	case s.PredicateType != TypeRun && s.PredicateType != TypeApproval:
		return s, nil, fmt.Errorf("a statement of the type %q has no place here", s.PredicateType)
	case len(by) == 0:
		return s, nil, errors.New("it stands before any record of a key")
	}
	text, err := signedBy(e, by)
	return s, text, err
}

// key is the key that a statement introduces.
func (s Statement) key() (PublicKey, error) {
	var r KeyRecord
	if err := json.Unmarshal(s.Predicate, &r); err != nil {
		return PublicKey{}, err
	}
	keys, err := ParsePublicKeys([]byte(r.Key))
	if err != nil {
		return PublicKey{}, err
	}
	if len(keys) != 1 {
		return PublicKey{}, fmt.Errorf("it introduces %d keys", len(keys))
	}
	return keys[0], nil
}

// unseal reads what an envelope holds, without looking at its signatures.
func unseal(envelope []byte) (e dsse.Envelope, s Statement, err error) {
	if err := json.Unmarshal(envelope, &e); err != nil {
		return e, s, fmt.Errorf("the envelope: %w", err)
	}
	text, err := base64.StdEncoding.DecodeString(e.Payload)
	if err == nil {
		err = json.Unmarshal(text, &s)
	}
	if err == nil && (s.Type != intoto.StatementTypeUri || e.PayloadType != payloadType) {
		err = fmt.Errorf("it is a %q in a %q", s.Type, e.PayloadType)
	}
	if err != nil {
		return e, s, fmt.Errorf("the statement: %w", err)
	}
	return e, s, nil
}

// signedBy returns the statement of an envelope that all keys have signed, and no other.
func signedBy(e dsse.Envelope, keys []PublicKey) ([]byte, error) {
	var of []dsse.Verifier
	for _, k := range keys {
		of = append(of, verifier{k})
	}
	check, err := dsse.NewMultiEnvelopeVerifier(len(of), of...)
	if err != nil {
		return nil, err
	}
	_, text, err := check.VerifyAndDecode(context.Background(), &e)
	if err != nil || len(e.Signatures) != len(keys) {
		return nil, errors.Join(fmt.Errorf("it is not signed by the key in force, %s", keys[len(keys)-1].Fingerprint()), err)
	}
	return text, nil
}

// finish checks what only the end of an export shows.
func (v *verification) finish() error {
	trusted := func(k PublicKey) bool { return slices.ContainsFunc(v.trust.Keys, k.equal) }
	if !slices.ContainsFunc(v.keys, trusted) {
		return errors.New("no key of this log is one that is trusted")
	}
	if _, err := openCheckpoint(v.head.Checkpoint, v.keys[len(v.keys)-1]); err != nil {
		return err
	}
	if v.check.name != nameOf(v.keys[0]) {
		return fmt.Errorf("the checkpoint is of a log by the name %q", v.check.name)
	}
	if v.whole() {
		if root, err := tlog.TreeHash(v.check.tree.N, v.leaves); err != nil || root != v.check.tree.Hash {
			return errors.Join(errors.New("the records are not those of the checkpoint"), err)
		}
	}
	if len(v.places) > 0 {
		return fmt.Errorf("record %d with the digest %s is not in it", v.places[0].Index, v.places[0].SHA256)
	}
	return v.since()
}

// since checks that an earlier checkpoint is of the beginning of this log.
func (v *verification) since() error {
	if v.trust.Since == nil {
		return nil
	}
	text := string(v.trust.Since)
	var head header
	if first, _, _ := bytes.Cut(v.trust.Since, []byte("\n")); json.Unmarshal(first, &head) == nil {
		text = head.Checkpoint
	}
	old, err := parseCheckpoint(text)
	if err != nil {
		return fmt.Errorf("the earlier export: %w", err)
	}
	signed := func(k PublicKey) bool { _, err := openCheckpoint(text, k); return err == nil }
	switch {
	case old.tree.N > v.check.tree.N:
		return fmt.Errorf("the log had %d records before, and has %d now", old.tree.N, v.check.tree.N)
	case !slices.ContainsFunc(v.keys, signed):
		return errors.New("the earlier checkpoint is signed by no key of this log")
	case !v.whole():
		return errors.New("that a log goes on from an earlier checkpoint shows in an export of the whole log alone")
	}
	if root, err := tlog.TreeHash(old.tree.N, v.leaves); err != nil || root != old.tree.Hash {
		return errors.Join(fmt.Errorf("the first %d records are not those of the earlier checkpoint", old.tree.N), err)
	}
	return nil
}
