package audit

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	intoto "github.com/in-toto/attestation/go/v1"
	"github.com/secure-systems-lab/go-securesystemslib/dsse"
	"github.com/secure-systems-lab/go-securesystemslib/signerverifier"
	"google.golang.org/protobuf/encoding/protojson"
)

// small is a log with a record, a new key and another record, and exports of it, whole and
// without the first record.
func small(t testing.TB) (l *Log, trust Trust, whole, part []byte) {
	t.Helper()
	dir := t.TempDir()
	l = open(t, dir)
	trust.Keys = []PublicKey{l.Key()}
	appendAll(t, l, 0, 1)
	if _, err := l.Rotate(); err != nil {
		t.Fatal(err)
	}
	appendAll(t, l, 1, 2)
	return l, trust, exportOf(t, dir, nil), exportOf(t, dir, func(r Record) bool { return r.Execution == "run-1" })
}

func verifies(export []byte, trust Trust) error {
	_, err := Verify(bytes.NewReader(export), trust, nil)
	return err
}

// TestEveryByte changes a bit of each byte of an export, of a whole log and of a part. At the
// end of base64 there are bits that decoders pass over: there it tries every letter.
//
// probe: F11
// oracle: the export as it was, which verifies
func TestEveryByte(t *testing.T) {
	_, trust, whole, part := small(t)
	for _, export := range [][]byte{whole, part} {
		if err := verifies(export, trust); err != nil {
			t.Fatal(err)
		}
		for i := range export {
			others := []byte{export[i] ^ 1<<(i%8)}
			if i+1 < len(export) && export[i+1] == '=' {
				others = []byte("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/")
			}
			was := export[i]
			for _, export[i] = range others {
				if err := verifies(export, trust); err == nil && export[i] != was {
					t.Errorf("verifies with byte %d changed to %q: ...%s...", i, export[i], export[max(0, i-20):min(len(export), i+20)])
				}
			}
			export[i] = was
		}
	}
}

// TestTampered takes records out of an export, puts others in, and so on.
//
// probe: F11
// oracle: the export as it was, which verifies
func TestTampered(t *testing.T) {
	l, trust, whole, part := small(t)
	_, foreign, other, _ := small(t)
	lines := bytes.SplitAfter(whole, []byte("\n"))[:5]
	others := bytes.SplitAfter(other, []byte("\n"))[:5]
	head := bytes.Replace(lines[0], []byte(`"records":4`), []byte(`"records":3`), 1)
	for name, export := range map[string][]byte{
		"nothing":                    nil,
		"the header alone":           lines[0],
		"cut":                        bytes.Join(lines[:4], nil),
		"cut, and said so":           slices.Concat(head, bytes.Join(lines[1:4], nil)),
		"cut within a line":          whole[:len(whole)-10],
		"a record dropped":           slices.Concat(bytes.Join(lines[:2], nil), bytes.Join(lines[3:], nil)),
		"a record dropped, and said": slices.Concat(head, bytes.Join(lines[1:2], nil), bytes.Join(lines[3:], nil)),
		"two swapped":                slices.Concat(bytes.Join(lines[:3], nil), lines[4], lines[3]),
		"a record twice":             slices.Concat(whole, lines[4]),
		"a record of another log":    slices.Concat(bytes.Join(lines[:4], nil), others[4]),
		"the header of another log":  slices.Concat(others[0], bytes.Join(lines[1:], nil)),
		"another log":                other,
		"the key's change dropped":   bytes.Replace(part, lineOf(part, `"index":2,`), nil, 1),
		"two exports":                slices.Concat(whole, whole),
		"spaces":                     bytes.Replace(whole, []byte(`{"index":3,`), []byte(`{"index": 3,`), 1),
		"a key twice":                bytes.Replace(whole, []byte(`{"index":3,`), []byte(`{"index":9,"index":3,`), 1),
		"an unknown key":             bytes.Replace(whole, []byte(`{"index":3,`), []byte(`{"note":"","index":3,`), 1),
	} {
		if err := verifies(export, trust); err == nil {
			t.Errorf("%s: verifies", name)
		}
	}
	dir := t.TempDir()
	m := open(t, dir)
	appendAll(t, m, 0, 3)
	some := exportOf(t, dir, func(r Record) bool { return r.Execution != "run-1" })
	l0 := bytes.SplitAfter(some, []byte("\n"))
	for name, export := range map[string][]byte{
		"twice":   slices.Concat(l0[0], l0[1], l0[2], l0[2]),
		"swapped": slices.Concat(l0[0], l0[1], l0[3], l0[2]),
	} {
		if err := verifies(export, Trust{Keys: []PublicKey{m.Key()}}); err == nil {
			t.Errorf("records of a part, %s: verifies", name)
		}
	}
	// Controls: each is right where it belongs.
	for _, good := range []struct {
		export []byte
		trust  Trust
	}{{some, Trust{Keys: []PublicKey{m.Key()}}}, {whole, trust}, {part, trust}, {other, foreign}, {whole, Trust{Keys: []PublicKey{l.Key()}}}} {
		if err := verifies(good.export, good.trust); err != nil {
			t.Error(err)
		}
	}
	if err := verifies(whole, Trust{}); err == nil {
		t.Error("verifies without any key")
	}
}

// lineOf is the line of an export that holds text.
func lineOf(export []byte, text string) []byte {
	for line := range bytes.Lines(export) {
		if bytes.Contains(line, []byte(text)) {
			return line
		}
	}
	return nil
}

// TestOwnSignature has somebody write a log of his own in the place of ours: with his own
// key, and with one of ours that was stolen before it was changed.
//
// probe: F11
// oracle: the same log, for whom trusts the forger's key
func TestOwnSignature(t *testing.T) {
	_, trust, _, _ := small(t)
	dir := t.TempDir()
	forger := open(t, dir)
	appendAll(t, forger, 0, 3)
	if err := verifies(exportOf(t, dir, nil), trust); err == nil {
		t.Error("a log of another key verifies")
	}
	if err := verifies(exportOf(t, dir, nil), Trust{Keys: []PublicKey{forger.Key()}}); err != nil {
		t.Error(err)
	}
	forger.name = namePrefix + "another"
	appendAll(t, forger, 3, 4)
	if err := verifies(exportOf(t, dir, nil), Trust{Keys: []PublicKey{forger.Key()}}); err == nil {
		t.Error("a log by another name verifies")
	}
	forger.name = nameOf(forger.Key())
	appendAll(t, forger, 4, 5)
	// He has a key of his own introduce ours, which has signed nothing of it.
	real := &signer{forger.key.private}
	forger.key = &signer{ed25519.NewKeyFromSeed(make([]byte, 32))}
	if err := forger.introduce(forger.key, real); err != nil {
		t.Fatal(err)
	}
	appendAll(t, forger, 5, 6)
	if err := verifies(exportOf(t, dir, nil), trust); err == nil {
		t.Error("a log that goes on with another key verifies")
	}
}

// TestSince compares an export with an earlier one of the same log.
//
// probe: F11
// oracle: the earlier export of the log as it was
func TestSince(t *testing.T) {
	dir := t.TempDir()
	l := open(t, dir)
	appendAll(t, l, 0, 3)
	trust := Trust{Keys: []PublicKey{l.Key()}}
	early := exportOf(t, dir, nil)
	back := t.TempDir() // the log as it was then, which goes on otherwise
	err := errors.Join(os.CopyFS(back, os.DirFS(dir)), os.Chmod(filepath.Join(back, keyFile), 0o600))
	if err != nil {
		t.Fatal(err)
	}
	places := appendAll(t, l, 3, 5)
	late, part := exportOf(t, dir, nil), exportOf(t, dir, func(Record) bool { return false })
	var head header
	if err := json.Unmarshal(late[:bytes.IndexByte(late, '\n')], &head); err != nil {
		t.Fatal(err)
	}
	for _, since := range [][]byte{early, late, []byte(head.Checkpoint)} {
		if err := verifies(late, Trust{Keys: trust.Keys, Since: since}); err != nil {
			t.Error(err)
		}
	}
	appendAll(t, open(t, back), 7, 9)
	forged := exportOf(t, back, nil)
	if err := verifies(forged, trust); err != nil {
		t.Errorf("control: who has the key can write another log: %v", err)
	}
	for name, err := range map[string]error{
		"rolled back":                  verifies(early, Trust{Keys: trust.Keys, Since: late}),
		"rolled back, and gone on":     verifies(forged, Trust{Keys: trust.Keys, Since: late}),
		"without a record of a result": verifies(forged, Trust{Keys: trust.Keys, Places: places}),
		"a part":                       verifies(part, Trust{Keys: trust.Keys, Since: early}),
		"no export":                    verifies(late, Trust{Keys: trust.Keys, Since: []byte("{}")}),
		"a signature changed":          verifies(late, Trust{Keys: trust.Keys, Since: bytes.Replace(early, []byte("\\n— "), []byte("\\n—  "), 1)}),
	} {
		if err == nil {
			t.Errorf("%s: verifies", name)
		}
	}
}

// FuzzVerify holds that nothing but an export, byte for byte, verifies.
//
// probe: F11
// oracle: the export as it was
func FuzzVerify(f *testing.F) {
	_, trust, whole, part := small(f)
	f.Add(0, 0, []byte(nil))
	f.Add(40, 44, []byte("1"))
	f.Add(900, 1200, []byte(`"proof":[],`))
	f.Fuzz(func(t *testing.T, from, to int, text []byte) {
		for _, export := range [][]byte{whole, part} {
			if from < 0 || to < from || to > len(export) {
				return
			}
			changed := slices.Concat(export[:from], text, export[to:])
			if err := verifies(changed, trust); (err == nil) != bytes.Equal(changed, export) {
				t.Errorf("%v, with %q in the place of %q", err, text, export[from:to])
			}
		}
	})
}

// TestOthersVerify has the envelopes read by the libraries of in-toto and of DSSE, with
// the public key from its file.
func TestOthersVerify(t *testing.T) {
	l, _, whole, _ := small(t)
	key, err := signerverifier.LoadKey([]byte(l.Key().PEM()))
	if err != nil {
		t.Fatal(err)
	}
	theirs, err := signerverifier.NewED25519SignerVerifierFromSSLibKey(key)
	if err != nil {
		t.Fatal(err)
	}
	check, err := dsse.NewEnvelopeVerifier(theirs)
	if err != nil {
		t.Fatal(err)
	}
	var accepted []string
	for line := range bytes.Lines(whole) {
		var rec struct{ Envelope dsse.Envelope }
		if err := json.Unmarshal(line, &rec); err != nil {
			t.Fatal(err)
		}
		keys, text, err := check.VerifyAndDecode(context.Background(), &rec.Envelope)
		if err != nil {
			continue
		}
		var s intoto.Statement
		if err := errors.Join(protojson.Unmarshal(text, &s), s.Validate()); err != nil || len(keys) != 1 {
			t.Fatalf("%s: %v", text, err)
		}
		accepted = append(accepted, s.GetPredicateType()+" "+s.GetPredicate().GetFields()["execution"].GetStringValue())
		rec.Envelope.Payload = base64.StdEncoding.EncodeToString(append(text, ' '))
		if _, err := check.Verify(context.Background(), &rec.Envelope); err == nil {
			t.Error("control: an envelope that was changed verifies")
		}
	}
	if want := []string{TypeKey + " ", TypeRun + " run-1"}; !slices.Equal(accepted, want) {
		t.Errorf("accepted %q, want those of the new key, %q", accepted, want)
	}
}

// TestStatement reads a record back as it was given, with its subjects.
func TestStatement(t *testing.T) {
	dir := t.TempDir()
	l := open(t, dir)
	want := sample(0)
	code := 137
	want.Outcome.ExitCode = &code
	if _, err := l.Append(want); err != nil {
		t.Fatal(err)
	}
	_, err := Verify(bytes.NewReader(exportOf(t, dir, nil)), Trust{Keys: []PublicKey{l.Key()}}, func(e Entry) error {
		if e.PredicateType != TypeRun {
			return nil
		}
		r, err := e.Run()
		a, _ := json.Marshal(r)
		b, _ := json.Marshal(want.filled())
		if err != nil || string(a) != string(b) {
			t.Errorf("%s, %v\nwant %s", a, err, b)
		}
		subjects := map[string]string{}
		for _, s := range e.Subject {
			subjects[s.Name] = strings.Join(slices.Collect(maps.Keys(s.Digest)), " ")
		}
		if want := map[string]string{"hello.py": "sha256", "commit": "gitCommit", "events.ndjson": "sha256"}; !maps.Equal(subjects, want) {
			t.Errorf("subjects %v", subjects)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	for name, change := range map[string]func(*Record){
		"no digest":         func(r *Record) { r.Events.SHA256 = "" },
		"a digest too long": func(r *Record) { r.Artifacts[0].SHA256 += "00" },
		"no commit's":       func(r *Record) { r.Commit = "main" },
		"no JSON":           func(r *Record) { r.Network.Receipt = json.RawMessage("{") },
		"too long":          func(r *Record) { r.Command.Argv = []string{strings.Repeat(rand.Text(), MaxStatement/20)} },
	} {
		r := sample(1)
		change(&r)
		if p, err := l.Append(r); err == nil {
			t.Errorf("%s: it is at %+v", name, p)
		}
	}
	appendAll(t, l, 1, 2)
	if _, names := runs(t, dir, Trust{Keys: []PublicKey{l.Key()}}); !slices.Equal(names, numbered(2)) {
		t.Errorf("%v", names)
	}
}
