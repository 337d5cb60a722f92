// Package others_test is in a module of its own; see go.mod.
package others_test

import (
	"bytes"
	"crypto"
	"encoding/base64"
	"encoding/json"
	"strings"
	"testing"

	securesystems "github.com/secure-systems-lab/go-securesystemslib/dsse"
	"github.com/sigstore/sigstore/pkg/cryptoutils"
	"github.com/sigstore/sigstore/pkg/signature"
	"github.com/sigstore/sigstore/pkg/signature/dsse"

	"sallyport/executor/audit"
)

// TestSigstore has the envelopes of an export verified by sigstore's library, with the
// public key from its PEM file.
func TestSigstore(t *testing.T) {
	dir := t.TempDir()
	log, err := audit.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	digest := strings.Repeat("0123456789abcdef", 4)
	if _, err := log.Append(audit.Record{Execution: "a", Events: audit.Events{Log: "events", SHA256: digest}}); err != nil {
		t.Fatal(err)
	}
	before := log.Key()
	if _, err := log.Rotate(); err != nil {
		t.Fatal(err)
	}
	var export bytes.Buffer
	if err := audit.Export(&export, dir, nil); err != nil {
		t.Fatal(err)
	}
	ours, next := verifier(t, before.PEM()), verifier(t, log.Key().PEM())
	var accepted []bool
	for line := range bytes.Lines(export.Bytes()) {
		var rec struct{ Envelope json.RawMessage }
		if err := json.Unmarshal(line, &rec); err != nil || rec.Envelope == nil {
			continue // the header
		}
		for _, v := range []signature.Verifier{ours, next} {
			accepted = append(accepted, v.VerifySignature(bytes.NewReader(rec.Envelope), nil) == nil)
		}
		if err := ours.VerifySignature(bytes.NewReader(changed(t, rec.Envelope)), nil); err == nil {
			t.Error("control: an envelope that was changed verifies")
		}
	}
	// The first key, the run, and the change of the key, which both have signed.
	want := []bool{true, false, true, false, true, true}
	if len(accepted) != len(want) {
		t.Fatalf("%d answers, want %d", len(accepted), len(want))
	}
	for i := range want {
		if accepted[i] != want[i] {
			t.Errorf("accepted %v, want %v", accepted, want)
			break
		}
	}
}

func verifier(t *testing.T, text string) signature.Verifier {
	t.Helper()
	key, err := cryptoutils.UnmarshalPEMToPublicKey([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	v, err := signature.LoadVerifier(key, crypto.SHA256)
	if err != nil {
		t.Fatal(err)
	}
	return dsse.WrapVerifier(v)
}

// changed is an envelope with a space behind its statement.
func changed(t *testing.T, envelope []byte) []byte {
	t.Helper()
	var e securesystems.Envelope
	if err := json.Unmarshal(envelope, &e); err != nil {
		t.Fatal(err)
	}
	text, err := e.DecodeB64Payload()
	if err != nil {
		t.Fatal(err)
	}
	e.Payload = base64.StdEncoding.EncodeToString(append(text, ' '))
	data, err := json.Marshal(e)
	if err != nil {
		t.Fatal(err)
	}
	return data
}
