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
	var write func(audit.Entry) error
	switch format {
	case Own:
		return audit.Export(w, dir, want)
	case "ocsf":
		write = ocsfTo(w)
	case "otel":
		write = otelTo(w)
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
	_, err = audit.Verify(out, audit.Trust{Keys: []audit.PublicKey{key}}, write)
	out.CloseWithError(err)
	<-exported
	return err
}

// ocsfTo writes runs, and decisions about approvals.
func ocsfTo(w io.Writer) func(audit.Entry) error {
	lines := json.NewEncoder(w)
	return func(e audit.Entry) (err error) {
		var events []ocsf.Event
		switch e.PredicateType {
		case audit.TypeRun:
			var r audit.Record
			if r, err = e.Run(); err == nil {
				events, err = ocsf.Events(e.Place, r)
			}
		case audit.TypeApproval:
			var d audit.Decision
			d, err = e.Decision()
			events = []ocsf.Event{ocsf.Decision(e.Place, d)}
		}
		for _, event := range events {
			err = errors.Join(err, lines.Encode(event))
		}
		return err
	}
}

// otelTo writes runs.
func otelTo(w io.Writer) func(audit.Entry) error {
	traces := telemetry.NewJSON(w, version.String())
	return func(e audit.Entry) error {
		if e.PredicateType != audit.TypeRun {
			return nil
		}
		r, err := e.Run()
		if err != nil {
			return err
		}
		return traces.Write(r)
	}
}
