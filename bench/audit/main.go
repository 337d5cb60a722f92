// Command audit measures the audit log: appending a record beside a bare write of as many
// bytes that is made to last, and verifying an export beside the signatures that it cannot do
// without. It wants nothing but a disk. See bench/README.md.
package main

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"sallyport/bench/report"
	"sallyport/executor/audit"
)

// limit bounds a whole measurement; it takes about half a minute.
const limit = 8 * time.Minute

const about = "The audit log."

func main() { os.Exit(report.Main(limit, run)) }

// A bench is what is measured, and how much of it.
type bench struct {
	records, appends int
	flags            *report.Flags
	dir              string
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	b := &bench{flags: report.NewFlags("bench audit", stderr, 5)}
	b.flags.IntVar(&b.records, "records", 10_000, "`number` of records that are verified")
	b.flags.IntVar(&b.appends, "appends", 200, "`number` of records that each turn appends")
	if err := b.flags.Parse(args); err != nil {
		return err
	}
	if b.records < 1 || b.appends < 1 {
		return errors.New("a flag is out of range")
	}
	// Beside the results, for /tmp may be memory, where fsync does nothing.
	if err := os.MkdirAll(filepath.Dir(b.flags.Out), 0o755); err != nil {
		return err
	}
	var err error
	if b.dir, err = os.MkdirTemp(filepath.Dir(b.flags.Out), "audit-"); err != nil {
		return err
	}
	defer os.RemoveAll(b.dir)
	appended, err := b.append(ctx)
	if err != nil {
		return fmt.Errorf("append: %w", err)
	}
	verified, err := b.verify(ctx)
	if err != nil {
		return fmt.Errorf("verify: %w", err)
	}
	return b.flags.Finish(stdout, about, "audit: ", append(appended, verified...))
}

// record is of the size that a run of an agent with twenty hosts has.
func record(i int) audit.Record {
	digest := strings.Repeat("0123456789abcdef", 4)
	row := `{"host":"registry.example.org","port":443,"kind":"tls","verdict":"allow","reason":"listed","count":3,"bytesUp":2410,"bytesDown":18700}`
	return audit.Record{
		Execution: fmt.Sprintf("01m7xs3ty1hj73cr72jne%05d", i),
		Command:   audit.Command{Argv: []string{"pi", "--mode", "json"}, Directory: "/workspace", Environment: strings.Fields(strings.Repeat("SOME_VARIABLE ", 30))},
		Network:   audit.Network{Policy: "strict", Digest: "sha256:" + digest, Receipt: json.RawMessage(`{"policy":"strict","hosts":[` + strings.Repeat(row+",", 19) + row + `]}`)},
		Artifacts: []audit.Artifact{{Name: "out/hello.py", Size: 120, SHA256: digest}},
		Outcome:   audit.Outcome{State: audit.StateFinished, Success: true, Accepted: time.Unix(1_790_000_000, 0).UTC()},
		Events:    audit.Events{Log: "events.ndjson", Count: 40, SHA256: digest, Root: digest},
	}
}

// append times single appends, and single writes of the same length with fsync.
func (b *bench) append(ctx context.Context) ([]report.Figure, error) {
	log, err := audit.Open(filepath.Join(b.dir, "appended"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	bare, err := os.Create(filepath.Join(b.dir, "bare"))
	if err != nil {
		return nil, err
	}
	defer bare.Close()
	var ours, peer report.Samples
	var line []byte
	for i := range b.flags.Rounds * b.appends {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		began := time.Now()
		if _, err := log.Append(record(i)); err != nil {
			return nil, err
		}
		ours = append(ours, ms(began))
		if line == nil { // as long as what was appended, which nothing of us shows but the export
			var b2 bytes.Buffer
			if err := audit.Export(&b2, filepath.Join(b.dir, "appended"), nil); err != nil {
				return nil, err
			}
			line = make([]byte, b2.Len())
		}
		began = time.Now()
		if _, err := bare.Write(line); err != nil {
			return nil, err
		}
		if err := bare.Sync(); err != nil {
			return nil, err
		}
		peer = append(peer, ms(began))
	}
	const name = "write and fsync of as much"
	p99 := func(s report.Samples) report.Samples { return report.Samples{s.Quantile(0.99)} }
	return []report.Figure{
		report.Beside("sign and append a record", "ms", ours, name, peer),
		report.Beside("... its p99", "ms", p99(ours), name, p99(peer)),
		report.Alone("length of a record in the log", "B", report.Samples{float64(len(line))}),
	}, nil
}

func ms(began time.Time) float64 { return float64(time.Since(began).Microseconds()) / 1000 }

// verify times the verification of an export, its opening and its export.
func (b *bench) verify(ctx context.Context) ([]report.Figure, error) {
	dir := filepath.Join(b.dir, "verified")
	log, err := audit.Open(dir)
	if err != nil {
		return nil, err
	}
	for i := range b.records {
		if _, err := log.Append(record(i)); err != nil || ctx.Err() != nil {
			return nil, errors.Join(err, ctx.Err())
		}
	}
	trust := audit.Trust{Keys: []audit.PublicKey{log.Key()}}
	if err := log.Close(); err != nil {
		return nil, err
	}
	public, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		return nil, err
	}
	var export bytes.Buffer
	if err := audit.Export(&export, dir, nil); err != nil {
		return nil, err
	}
	text := make([]byte, export.Len()/b.records)
	signature := ed25519.Sign(private, text)
	var verified, signatures, opened, exported report.Samples
	for range b.flags.Rounds {
		began := time.Now()
		if _, err := audit.Verify(bytes.NewReader(export.Bytes()), trust, nil); err != nil {
			return nil, err
		}
		verified = append(verified, ms(began))
		began = time.Now()
		for range b.records {
			if !ed25519.Verify(public, text, signature) {
				return nil, errors.New("a signature does not verify")
			}
		}
		signatures = append(signatures, ms(began))
		began = time.Now()
		log, err := audit.Open(dir)
		if err != nil {
			return nil, err
		}
		opened = append(opened, ms(began))
		began = time.Now()
		if err := errors.Join(log.Close(), audit.Export(io.Discard, dir, nil), ctx.Err()); err != nil {
			return nil, err
		}
		exported = append(exported, ms(began))
	}
	of := fmt.Sprintf("%d records", b.records)
	return []report.Figure{
		report.Beside("verify an export of "+of, "ms", verified, "as many Ed25519 signatures", signatures),
		report.Alone("open the log of "+of, "ms", opened),
		report.Alone("export "+of, "ms", exported),
	}, nil
}
