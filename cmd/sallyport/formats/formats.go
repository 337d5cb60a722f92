// Package formats writes the audit log in the formats of others, in which its records are
// not signed.
package formats

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"sallyport/executor/audit"
	"sallyport/executor/audit/ocsf"
	"sallyport/executor/telemetry"
	"sallyport/internal/version"
)

// Own is the log's own format, which audit.Export writes.
const Own = "sallyport"

// Names are the formats, the log's own first.
var Names = []string{Own, "ocsf", "otel"}

// Export writes the records of the log in dir that want chooses, all where it is nil. Each
// is verified on the way, with the key that the log has now.
func Export(w io.Writer, format, dir string, want func(audit.Record) bool) error {
	var write func(audit.Place, audit.Record) error
	switch format {
	case Own:
		return audit.Export(w, dir, want)
	case "ocsf":
		write = ocsfTo(w)
	case "otel":
		traces := telemetry.NewJSON(w, version.String())
		write = func(_ audit.Place, r audit.Record) error { return traces.Write(r) }
	default:
		return fmt.Errorf("no format %q", format)
	}
	key, err := audit.CurrentKey(dir)
	if err != nil {
		return err
	}
	out, in := io.Pipe()
	exported := make(chan struct{})
	go func() {
		defer close(exported)
		in.CloseWithError(audit.Export(in, dir, want))
	}()
	_, err = audit.Verify(out, audit.Trust{Keys: []audit.PublicKey{key}}, func(e audit.Entry) error {
		if e.PredicateType != audit.TypeRun {
			return nil
		}
		r, err := e.Run()
		if err != nil {
			return err
		}
		return write(e.Place, r)
	})
	out.CloseWithError(err)
	<-exported
	return err
}

func ocsfTo(w io.Writer) func(audit.Place, audit.Record) error {
	lines := json.NewEncoder(w)
	return func(at audit.Place, r audit.Record) error {
		events, err := ocsf.Events(at, r)
		for _, e := range events {
			err = errors.Join(err, lines.Encode(e))
		}
		return err
	}
}
