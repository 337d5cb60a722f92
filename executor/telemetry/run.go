package telemetry

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"iter"
	"strconv"
	"strings"
	"time"

	"github.com/oklog/ulid/v2"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	semconv "go.opentelemetry.io/otel/semconv/v1.41.0"
	"go.opentelemetry.io/otel/trace"

	"sallyport/executor/api"
	"sallyport/executor/audit"
	"sallyport/firewall"
	"sallyport/firewall/account"
)

// An agent chooses what its tools and models are called, and how many there are.
const (
	maxSpans = 1000 // of a run, below its own
	maxText  = 256  // bytes of a name or a value
)

// A teller makes the spans of one run: its own, and one for each answer of a model and
// each use of a tool.
type teller struct {
	tracer trace.Tracer
	redact func(string) string
	record audit.Record
	usage  *instruments // nil for no metrics

	ctx     context.Context
	step    time.Time            // when the step before ended
	tools   map[string]time.Time // when each began that has not ended
	spans   int
	dropped int
}

func (t *teller) tell(events iter.Seq[api.Event]) {
	r := t.record
	started := r.Outcome.Accepted
	t.ctx, t.step, t.tools = context.WithValue(context.Background(), idsKey{}, newTraceIDs(r.Execution)), started, map[string]time.Time{}
	ctx, span := t.tracer.Start(t.ctx, t.text("invoke_agent "+r.Agent.Name), trace.WithTimestamp(started), trace.WithAttributes(t.clean(ofRun(r))...))
	t.ctx = ctx
	ended := started.Add(time.Duration(r.Outcome.DurationMS) * time.Millisecond)
	if events != nil {
		for ev := range events {
			t.event(span, ev)
			if r.Outcome.Ended == nil { // nobody saw the end; it was not before this
				ended = ev.Time
			}
		}
	}
	if t.dropped > 0 {
		span.SetAttributes(attribute.Int("sallyport.spans.dropped", t.dropped))
	}
	if code := r.Outcome.Code; code != "" {
		span.SetStatus(codes.Error, t.text(code))
	}
	span.End(trace.WithTimestamp(ended))
	t.usage.ran(t.ctx, r, ended.Sub(started))
}

// event tells what an event of the run means.
func (t *teller) event(run trace.Span, ev api.Event) {
	switch {
	case ev.Type == api.EventStage:
		run.AddEvent("sallyport.stage", trace.WithTimestamp(ev.Time), trace.WithAttributes(attribute.String("sallyport.stage", t.text(ev.Stage))))
		t.step = ev.Time
	case ev.Type == api.EventEgress && ev.Decision != nil:
		d := ev.Decision
		run.AddEvent("sallyport.egress", trace.WithTimestamp(ev.Time), trace.WithAttributes(t.clean([]attribute.KeyValue{
			semconv.ServerAddress(d.Host), semconv.ServerPort(int(d.Port)),
			attribute.String("sallyport.verdict", string(d.Verdict)), attribute.String("sallyport.reason", string(d.Reason)),
		})...))
	case ev.Type == api.EventToolStart && ev.Tool != nil && len(t.tools) < maxSpans:
		t.tools[t.text(ev.Tool.ID)] = ev.Time
	case ev.Type == api.EventToolEnd && ev.Tool != nil:
		t.tool(ev)
	case ev.Type == api.EventUsage && ev.Usage != nil:
		t.answer(ev)
	}
}

// tool tells of the use of a tool.
func (t *teller) tool(ev api.Event) {
	id := t.text(ev.Tool.ID)
	begun, ok := t.tools[id]
	if !ok {
		begun = ev.Time
	}
	delete(t.tools, id)
	t.step = ev.Time
	failed := ""
	if ev.Tool.IsError {
		failed = "tool_error"
	}
	t.below("execute_tool "+ev.Tool.Name, trace.SpanKindInternal, begun, ev.Time, failed, []attribute.KeyValue{
		semconv.GenAIOperationNameExecuteTool, semconv.GenAIToolName(ev.Tool.Name), semconv.GenAIToolCallID(ev.Tool.ID), semconv.GenAIToolType("function"),
	})
}

// answer tells of a model's answer. When it was asked for nobody says; it was not before
// the step before had ended.
func (t *teller) answer(ev api.Event) {
	r := t.record
	t.below("chat "+ev.Model, trace.SpanKindClient, t.step, ev.Time, "", append(ofUsage(*ev.Usage),
		semconv.GenAIOperationNameChat, provider(r.Agent.Provider), semconv.GenAIRequestModel(r.Agent.Model),
		semconv.GenAIResponseModel(ev.Model), semconv.GenAIConversationID(r.Agent.Session)))
	t.usage.answered(t.ctx, r, ev, ev.Time.Sub(t.step))
	t.step = ev.Time
}

// below makes a span below the run's own.
func (t *teller) below(name string, kind trace.SpanKind, from, to time.Time, failed string, attributes []attribute.KeyValue) {
	if t.spans++; t.spans > maxSpans {
		t.dropped++
		return
	}
	if failed != "" {
		attributes = append(attributes, semconv.ErrorTypeKey.String(failed))
	}
	_, span := t.tracer.Start(t.ctx, t.text(name), trace.WithSpanKind(kind), trace.WithTimestamp(from), trace.WithAttributes(t.clean(attributes)...))
	if failed != "" {
		span.SetStatus(codes.Error, failed)
	}
	span.End(trace.WithTimestamp(to))
}

// text is a text without secrets, cut where it is too long.
func (t *teller) text(s string) string {
	if s = t.redact(s); len(s) > maxText {
		s = s[:maxText]
	}
	return strings.ToValidUTF8(s, "")
}

// clean is the attributes that say something, without secrets.
func (t *teller) clean(attributes []attribute.KeyValue) []attribute.KeyValue {
	var kept []attribute.KeyValue
	for _, a := range attributes {
		if a.Value.Type() == attribute.STRING {
			if a.Value.AsString() == "" {
				continue
			}
			a = a.Key.String(t.text(a.Value.AsString()))
		}
		kept = append(kept, a)
	}
	return kept
}

// ofRun is what a record says of its run, by the conventions' names where they have one.
func ofRun(r audit.Record) []attribute.KeyValue {
	list := []attribute.KeyValue{
		semconv.GenAIOperationNameInvokeAgent, provider(r.Agent.Provider), semconv.GenAIAgentName(r.Agent.Name),
		semconv.GenAIConversationID(r.Agent.Session), semconv.GenAIRequestModel(r.Agent.Model), semconv.GenAIWorkflowName(r.Workflow.Definition),
		semconv.GenAIUsageInputTokens(int(r.Agent.InputTokens)), semconv.GenAIUsageOutputTokens(int(r.Agent.OutputTokens)),
		semconv.ErrorTypeKey.String(r.Outcome.Code), semconv.ContainerID(r.Sandbox.ID), semconv.ContainerImageName(r.Sandbox.Image),
		semconv.ContainerImageID(r.Sandbox.ImageDigest), semconv.VCSRefHeadRevision(r.Commit),
	}
	for _, own := range []struct{ name, value string }{
		{"execution.id", r.Execution}, {"tenant", r.Tenant}, {"principal", r.Principal}, {"task.id", r.Task.ID}, {"task.name", r.Task.Name},
		{"workflow.version", r.Workflow.Version}, {"workflow.instance", r.Workflow.Instance}, {"profile", r.Profile.Effective},
		{"sandbox.provider", r.Sandbox.Provider}, {"sandbox.isolation", r.Sandbox.Isolation}, {"sandbox.tier", r.Sandbox.Tier},
		{"egress.policy", r.Network.Policy}, {"egress.digest", r.Network.Digest}, {"state", r.Outcome.State}, {"stop_reason", r.Outcome.StopReason},
	} {
		list = append(list, attribute.String("sallyport."+own.name, own.value))
	}
	if code := r.Outcome.ExitCode; code != nil {
		list = append(list, semconv.ProcessExitCode(*code))
	}
	return append(list, ofReceipt(r.Network.Receipt)...)
}

// ofReceipt sums up what a run reached and was refused.
func ofReceipt(data json.RawMessage) []attribute.KeyValue {
	var receipt account.Receipt
	if json.Unmarshal(data, &receipt) != nil {
		return nil
	}
	var allowed, refused, up, down int64
	for _, h := range receipt.Hosts {
		if h.Verdict == firewall.Allow {
			allowed, up, down = allowed+int64(h.Count), up+h.BytesUp, down+h.BytesDown
		} else {
			refused += int64(h.Count)
		}
	}
	return []attribute.KeyValue{
		attribute.Int64("sallyport.egress.allowed", allowed), attribute.Int64("sallyport.egress.refused", refused),
		attribute.Int64("sallyport.egress.bytes_up", up), attribute.Int64("sallyport.egress.bytes_down", down),
	}
}

// ofUsage is what an answer took. The conventions count cached tokens among the input.
func ofUsage(u api.Usage) []attribute.KeyValue {
	return []attribute.KeyValue{
		semconv.GenAIUsageInputTokens(int(u.InputTokens + u.CacheReadTokens + u.CacheCreationTokens)), semconv.GenAIUsageOutputTokens(int(u.OutputTokens)),
		semconv.GenAIUsageCacheReadInputTokens(int(u.CacheReadTokens)), semconv.GenAIUsageCacheCreationInputTokens(int(u.CacheCreationTokens)),
	}
}

// provider is the conventions' name of a model's provider; one that they do not know keeps
// its own.
func provider(name string) attribute.KeyValue {
	known := map[string]attribute.KeyValue{
		"amazon-bedrock": semconv.GenAIProviderNameAWSBedrock, "azure-openai-responses": semconv.GenAIProviderNameAzureAIOpenAI,
		"google": semconv.GenAIProviderNameGCPGemini, "google-vertex": semconv.GenAIProviderNameGCPVertexAI,
		"mistral": semconv.GenAIProviderNameMistralAI, "xai": semconv.GenAIProviderNameXAI,
	}
	if found, ok := known[name]; ok {
		return found
	}
	return semconv.GenAIProviderNameKey.String(name)
}

// traceIDs are the identifiers of one run's trace: the same each time that it is told of.
type traceIDs struct {
	trace trace.TraceID
	spans int
}

type idsKey struct{}

// newTraceIDs begins a trace: its identifier is the run's, which has as many bits.
func newTraceIDs(execution string) *traceIDs {
	if id, err := ulid.ParseStrict(strings.ToUpper(execution)); err == nil && id != (ulid.ULID{}) {
		return &traceIDs{trace: trace.TraceID(id)}
	}
	sum := sha256.Sum256([]byte(execution))
	return &traceIDs{trace: trace.TraceID(sum[:16])}
}

// ids gives the spans of a trace their identifiers, from its context.
type ids struct{}

// NewIDs implements the SDK's IDGenerator.
func (g ids) NewIDs(ctx context.Context) (trace.TraceID, trace.SpanID) {
	id := ctx.Value(idsKey{}).(*traceIDs).trace
	return id, g.NewSpanID(ctx, id)
}

// NewSpanID implements the SDK's IDGenerator.
func (ids) NewSpanID(ctx context.Context, id trace.TraceID) trace.SpanID {
	of := ctx.Value(idsKey{}).(*traceIDs)
	of.spans++
	sum := sha256.Sum256([]byte(id.String() + " " + strconv.Itoa(of.spans)))
	return trace.SpanID(sum[:8])
}
