package executor_test

import (
	"bytes"
	"encoding/hex"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/oklog/ulid/v2"
	metrics "go.opentelemetry.io/proto/otlp/collector/metrics/v1"
	traces "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	metricspb "go.opentelemetry.io/proto/otlp/metrics/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"sallyport/executor"
	"sallyport/executor/api"
	"sallyport/executor/telemetry"
	"sallyport/firewall"
	"sallyport/firewall/account"
)

// A collector is OTLP's other side.
type collector struct {
	*httptest.Server
	mu      sync.Mutex // guards what follows
	bodies  []byte     // as they came
	spans   []*tracepb.Span
	metrics []*metricspb.Metric
	faults  []string
}

func startCollector(t *testing.T) *collector {
	c := &collector{}
	c.Server = httptest.NewServer(c)
	t.Cleanup(c.Close)
	return c
}

func (c *collector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	body, err := io.ReadAll(r.Body)
	c.bodies = append(c.bodies, body...)
	var answer proto.Message
	switch r.URL.Path {
	case "/base/v1/traces":
		var req traces.ExportTraceServiceRequest
		answer = &traces.ExportTraceServiceResponse{}
		if err == nil {
			err = proto.Unmarshal(body, &req)
		}
		for _, rs := range req.GetResourceSpans() {
			for _, ss := range rs.GetScopeSpans() {
				c.spans = append(c.spans, ss.GetSpans()...)
			}
		}
	case "/base/v1/metrics":
		var req metrics.ExportMetricsServiceRequest
		answer = &metrics.ExportMetricsServiceResponse{}
		if err == nil {
			err = proto.Unmarshal(body, &req)
		}
		for _, rm := range req.GetResourceMetrics() {
			for _, sm := range rm.GetScopeMetrics() {
				c.metrics = append(c.metrics, sm.GetMetrics()...)
			}
		}
	}
	if err != nil || answer == nil || r.Header.Get("X-Key") != "collector's key" {
		c.faults = append(c.faults, r.URL.Path)
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	data, _ := proto.Marshal(answer)
	w.Header().Set("Content-Type", "application/x-protobuf")
	w.Write(data)
}

// said are attributes by their names.
func said(list []*common.KeyValue) map[string]any {
	all := map[string]any{}
	for _, a := range list {
		switch v := a.GetValue().GetValue().(type) {
		case *common.AnyValue_StringValue:
			all[a.GetKey()] = v.StringValue
		case *common.AnyValue_IntValue:
			all[a.GetKey()] = v.IntValue
		}
	}
	return all
}

// told starts an executor that tells a collector of runs; end sends what is left.
func told(t *testing.T) (h *harness, c *collector, end func()) {
	c = startCollector(t)
	e, err := telemetry.Open(t.Context(), telemetry.Config{
		Endpoint: c.URL + "/base/", Headers: map[string]string{"X-Key": "collector's key"}, Version: "test",
		Redact: func(s string) string { return strings.ReplaceAll(s, "collector's key", "?") }, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	h = start(t, func(c *executor.Config) { c.Ended = e.Ended })
	return h, c, func() {
		h.end()
		if err := e.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

// TestTelemetry runs an agent and has a collector decode what it is told of it.
//
// oracle: the result of the run
func TestTelemetry(t *testing.T) {
	h, c, end := told(t)
	h.recorded("demo", "sleep 1")
	body := strings.Replace(piRequest, `"config":{`, `"config":{"telemetry":{"workflowName":"nightly","phaseName":"review"},`, 1)
	id := h.begin(body)
	h.await(id, func(ev api.Event) bool { return ev.Type == api.EventUsage })
	h.gate.decide(account.Record{Kind: account.KindTLS, Host: "api.anthropic.com", Port: 443, Verdict: firewall.Allow, Reason: firewall.ReasonListed, BytesUp: 7})
	res := h.finish(id)
	if !res.Success {
		t.Fatalf("%+v", res.Error)
	}
	records, _ := audited(t, h.config.State, res)
	end()
	if len(c.faults) > 0 {
		t.Errorf("requests that are none of OTLP: %q", c.faults)
	}
	of := map[string][]map[string]any{}
	var run *tracepb.Span
	for _, s := range c.spans {
		all := said(s.GetAttributes())
		operation := all["gen_ai.operation.name"].(string)
		of[operation] = append(of[operation], all)
		if operation == "invoke_agent" {
			run = s
		}
	}
	if run == nil || len(of["invoke_agent"]) != 1 || len(of["chat"]) != res.Turns || len(of["execute_tool"]) != 2 {
		t.Fatalf("spans %v", of)
	}
	trace, _ := ulid.ParseStrict(strings.ToUpper(id))
	for _, s := range c.spans {
		below := s != run
		if !bytes.Equal(s.GetTraceId(), trace[:]) || below != bytes.Equal(s.GetParentSpanId(), run.GetSpanId()) || s.GetStartTimeUnixNano() > s.GetEndTimeUnixNano() ||
			s.GetStartTimeUnixNano() < run.GetStartTimeUnixNano() || s.GetEndTimeUnixNano() > run.GetEndTimeUnixNano() {
			t.Errorf("span %s %s of %s below %s, from %d to %d", s.GetName(), hex.EncodeToString(s.GetSpanId()), hex.EncodeToString(s.GetTraceId()),
				hex.EncodeToString(s.GetParentSpanId()), s.GetStartTimeUnixNano(), s.GetEndTimeUnixNano())
		}
	}
	input := res.InputTokens + res.CacheReadInputTokens + res.CacheCreationInputTokens
	for name, want := range map[string]any{
		"gen_ai.provider.name": "anthropic", "gen_ai.agent.name": "pi", "gen_ai.request.model": "claude-sonnet-4-6", "gen_ai.conversation.id": res.SessionID,
		"gen_ai.workflow.name": "nightly", "sallyport.task.name": "review", "gen_ai.usage.input_tokens": input, "gen_ai.usage.output_tokens": res.OutputTokens,
		"sallyport.execution.id": id, "container.id": res.Isolation.Sandbox, "container.image.id": res.Isolation.ImageDigest,
		"sallyport.egress.allowed": int64(1), "sallyport.egress.bytes_up": int64(7), "process.exit.code": int64(0),
	} {
		if got := of["invoke_agent"][0][name]; got != want || got == "" {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
	if r := records[0]; r.Workflow.Definition != "nightly" || r.Task.Name != "review" {
		t.Errorf("the audit record is of the workflow %+v, the task %+v", r.Workflow, r.Task)
	}
	var spent, measured int64
	for _, chat := range of["chat"] {
		spent += chat["gen_ai.usage.input_tokens"].(int64)
	}
	for _, m := range c.metrics {
		for _, p := range m.GetHistogram().GetDataPoints() {
			if all := said(p.GetAttributes()); m.GetName() == "gen_ai.client.token.usage" && all["gen_ai.token.type"] == "input" && all["gen_ai.provider.name"] == "anthropic" {
				measured += int64(p.GetSum())
			}
		}
	}
	if spent != input || measured != input {
		t.Errorf("the answers took %d tokens by their spans and %d by the metrics, want %d", spent, measured, input)
	}
}

// TestTelemetryHoldsNoSecret has a run put a key wherever it has a say in what a collector
// is told: in the names of its workflow and its hosts, and in what it prints.
//
// oracle: the bytes that the collector got
func TestTelemetryHoldsNoSecret(t *testing.T) {
	h, c, end := told(t)
	id := h.begin(strings.Replace(command("echo "+secretKey+" >&2; echo "+secretKey+"; sleep 1; exit 3", `"telemetry":{"workflowName":"of `+secretKey+`"}`),
		`"config"`, `"opts":{"taskId":"`+secretKey+`"},"config"`, 1))
	h.await(id, func(ev api.Event) bool { return ev.Type == api.EventOutput })
	h.gate.decide(account.Record{Kind: account.KindDNS, Host: secretKey + ".example", Verdict: firewall.Deny, Reason: firewall.ReasonNotListed})
	h.gate.decide(account.Record{Kind: account.KindDNS, Host: "plain.example", Verdict: firewall.Deny, Reason: firewall.ReasonNotListed})
	wantCode(t, h.finish(id), api.CodeCommandFailed)
	end()
	if bytes.Contains(c.bodies, []byte(secretKey)) {
		t.Error("the collector was told a key")
	}
	for _, said := range []string{"of [ANTHROPIC_API_KEY redacted]", "plain.example", "command_failed"} {
		if !bytes.Contains(c.bodies, []byte(said)) {
			t.Errorf("control: the collector was not told %q", said)
		}
	}
}
