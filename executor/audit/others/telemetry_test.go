package others_test

import (
	"bytes"
	"testing"
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"sallyport/executor/audit"
	"sallyport/executor/telemetry"
)

// TestCollector has a trace read by the library that OpenTelemetry's Collector reads it
// with.
func TestCollector(t *testing.T) {
	var out bytes.Buffer
	accepted := time.Date(2026, 11, 22, 17, 0, 0, 0, time.UTC)
	err := telemetry.NewJSON(&out, "test").Write(audit.Record{
		Execution: "01m7xs3ty1hj73cr72jnejwmy0", Agent: audit.Agent{Name: "pi", Provider: "anthropic", InputTokens: 5},
		Outcome: audit.Outcome{Accepted: accepted, DurationMS: 1500, Code: "agent_failed"},
	})
	if err != nil {
		t.Fatal(err)
	}
	traces, err := new(ptrace.JSONUnmarshaler).UnmarshalTraces(out.Bytes())
	if err != nil || traces.SpanCount() != 1 {
		t.Fatalf("%d spans, %v", traces.SpanCount(), err)
	}
	span := traces.ResourceSpans().At(0).ScopeSpans().At(0).Spans().At(0)
	if span.TraceID().String() != "01a1fb91ebc18c8e3660e2955d2e53c0" || span.SpanID().IsEmpty() || !span.ParentSpanID().IsEmpty() || span.Name() != "invoke_agent pi" ||
		span.Kind() != ptrace.SpanKindInternal || span.Status().Code() != ptrace.StatusCodeError || span.StartTimestamp() != pcommon.NewTimestampFromTime(accepted) ||
		span.EndTimestamp() != pcommon.NewTimestampFromTime(accepted.Add(1500*time.Millisecond)) {
		t.Errorf("%s %s %s %v %v", span.TraceID(), span.SpanID(), span.Name(), span.Kind(), span.Status())
	}
	for name, want := range map[string]any{"gen_ai.provider.name": "anthropic", "gen_ai.usage.input_tokens": int64(5), "error.type": "agent_failed"} {
		if got, ok := span.Attributes().Get(name); !ok || got.AsRaw() != want {
			t.Errorf("%s is %v, want %v", name, got.AsRaw(), want)
		}
	}
}
