package telemetry

import (
	"context"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/sdk/trace"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/encoding/protojson"

	"sallyport/executor/audit"
)

// A JSONExporter writes the trace of each audit record as a line of OTLP's JSON, as the
// Collector's file exporter has it. It has the identifiers that the executor's own has.
type JSONExporter struct {
	lines *lines
	spans *trace.TracerProvider
}

// NewJSON makes an exporter that writes to w. version is that of the build.
func NewJSON(w io.Writer, version string) *JSONExporter {
	l := &lines{w: w}
	return &JSONExporter{lines: l, spans: trace.NewTracerProvider(trace.WithResource(describe(version)),
		trace.WithSyncer(otlptrace.NewUnstarted(l)), trace.WithIDGenerator(ids{}))}
}

// Write writes the trace of a record.
func (e *JSONExporter) Write(r audit.Record) error {
	t := &teller{tracer: e.spans.Tracer(scope), redact: func(s string) string { return s }, record: r}
	t.tell(nil)
	return e.lines.err
}

// lines are where the library uploads spans to.
type lines struct {
	w   io.Writer
	err error // the first; the library keeps it to itself
}

func (*lines) Start(context.Context) error { return nil }
func (*lines) Stop(context.Context) error  { return nil }

// UploadTraces writes spans as a line.
func (l *lines) UploadTraces(_ context.Context, spans []*tracepb.ResourceSpans) error {
	data, err := protojson.MarshalOptions{UseEnumNumbers: true}.Marshal(&tracepb.TracesData{ResourceSpans: spans})
	var document any
	if err == nil {
		err = json.Unmarshal(data, &document)
	}
	if err == nil {
		err = hexadecimal(document)
	}
	if err == nil {
		err = json.NewEncoder(l.w).Encode(document)
	}
	if err != nil {
		err = fmt.Errorf("write a trace: %w", err)
	}
	l.err = errors.Join(l.err, err)
	return err
}

// hexadecimal changes the identifiers in a document to what OTLP's JSON has, other than
// that of protobuf.
func hexadecimal(v any) error {
	var errs []error
	switch v := v.(type) {
	case []any:
		for _, item := range v {
			errs = append(errs, hexadecimal(item))
		}
	case map[string]any:
		for name, item := range v {
			text, ok := item.(string)
			if !ok || name != "traceId" && name != "spanId" && name != "parentSpanId" {
				errs = append(errs, hexadecimal(item))
				continue
			}
			id, err := base64.StdEncoding.DecodeString(text)
			errs = append(errs, err)
			v[name] = hex.EncodeToString(id)
		}
	}
	return errors.Join(errs...)
}
