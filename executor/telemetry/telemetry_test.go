package telemetry_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	metricspb "go.opentelemetry.io/proto/otlp/metrics/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"sallyport/executor/api"
	"sallyport/executor/audit"
	"sallyport/executor/telemetry"
)

var accepted = time.Date(2026, 11, 22, 17, 0, 0, 0, time.UTC)

func record(i int) audit.Record {
	return audit.Record{
		Execution: fmt.Sprintf("01m7xs3ty1hj73cr72jnejwm%02d", i),
		Agent:     audit.Agent{Name: "pi", Provider: "google", Model: "gemini", InputTokens: 5},
		Network:   audit.Network{Receipt: json.RawMessage(`{"hosts":[{"host":"a","verdict":"allow","count":2,"bytesUp":3},{"host":"b","verdict":"deny","count":4}]}`)},
		Outcome:   audit.Outcome{State: audit.StateFinished, Code: "agent_failed", Accepted: accepted, DurationMS: 1500},
	}
}

// uses are the events of a run that uses a tool n times.
func uses(n int) func(func(api.Event) bool) {
	return func(yield func(api.Event) bool) {
		for i := range n {
			tool := &api.Tool{ID: fmt.Sprint(i), Name: "bash"}
			if !yield(api.Event{Type: api.EventToolStart, Time: accepted, Tool: tool}) || !yield(api.Event{Type: api.EventToolEnd, Time: accepted, Tool: tool}) {
				return
			}
		}
	}
}

func open(t *testing.T, endpoint string, log *bytes.Buffer) *telemetry.Exporter {
	t.Helper()
	e, err := telemetry.Open(t.Context(), telemetry.Config{
		Endpoint: endpoint, Headers: map[string]string{"Authorization": "Bearer KEY"}, Version: "test",
		Redact: func(s string) string { return strings.ReplaceAll(s, "KEY", "?") }, Log: slog.New(slog.NewTextHandler(log, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// TestNothingWaits tells a collector that never answers of more than may wait for it.
func TestNothingWaits(t *testing.T) {
	asked, answer := make(chan struct{}, 100), make(chan struct{})
	stuck := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		select {
		case asked <- struct{}{}:
		default:
		}
		<-answer
	}))
	defer stuck.Close()
	defer close(answer)
	var log bytes.Buffer
	e := open(t, stuck.URL, &log)
	for i := range 20 { // each with as many spans as a run may have, and more
		e.Ended(record(i), uses(1500))
		if i == 0 {
			<-asked // control: it has been asked, and does not answer
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := e.Close(ctx); err == nil {
		t.Error("the collector has taken it all")
	}
}

// TestCollectorIsDown says so once, and not with which key it was asked.
func TestCollectorIsDown(t *testing.T) {
	refusing := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Error(w, "no such key: "+r.Header.Get("Authorization"), http.StatusForbidden)
	}))
	defer refusing.Close()
	var log bytes.Buffer
	e := open(t, refusing.URL, &log)
	for i := range 3 {
		e.Ended(record(i), uses(600)) // of which each fills a request
	}
	e.Close(t.Context())
	if text := log.String(); strings.Count(text, "does not take telemetry") != 1 || strings.Contains(text, "KEY") {
		t.Errorf("the log says %s", text)
	}
}

// TestAgentsNames tells of an agent that makes up a long name for each tool and each model:
// the names are cut, and the metrics have no row for each.
//
// oracle: what a collector decodes
func TestAgentsNames(t *testing.T) {
	var mu sync.Mutex
	var spans []*tracepb.Span
	points := 0
	collector := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		body, err := io.ReadAll(r.Body)
		var told tracepb.TracesData
		var measured metricspb.MetricsData
		if strings.HasSuffix(r.URL.Path, "/traces") {
			err = errors.Join(err, proto.Unmarshal(body, &told))
		} else {
			err = errors.Join(err, proto.Unmarshal(body, &measured))
		}
		if err != nil {
			t.Error(err)
		}
		for _, rs := range told.ResourceSpans {
			spans = append(spans, rs.ScopeSpans[0].Spans...)
		}
		for _, rm := range measured.ResourceMetrics {
			for _, m := range rm.ScopeMetrics[0].Metrics {
				points += len(m.GetHistogram().GetDataPoints())
			}
		}
	}))
	defer collector.Close()
	e := open(t, collector.URL, new(bytes.Buffer))
	long := strings.Repeat("\u00e9", 60_000)
	e.Ended(record(0), func(yield func(api.Event) bool) {
		for i := range 300 {
			name := fmt.Sprint(i, long)
			tool := &api.Tool{ID: name, Name: name}
			for _, ev := range []api.Event{
				{Type: api.EventToolStart, Tool: tool}, {Type: api.EventToolEnd, Tool: tool}, {Type: api.EventUsage, Model: name, Usage: &api.Usage{InputTokens: 1}},
			} {
				ev.Time = accepted
				if !yield(ev) {
					return
				}
			}
		}
	})
	if err := e.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if len(spans) != 601 || points == 0 || points > 10 {
		t.Errorf("%d spans, %d rows of metrics", len(spans), points)
	}
	for _, s := range spans {
		longest := len(s.GetName())
		for _, a := range s.GetAttributes() {
			longest = max(longest, len(a.GetValue().GetStringValue()))
		}
		if longest > 256 {
			t.Fatalf("a text of %d bytes", longest)
		}
	}
}

func TestEndpoint(t *testing.T) {
	for _, bad := range []string{"collector:4318", "grpc://collector:4317", "http://", "http://user:secret@collector", "http://collector/?key=secret", "http://a b"} {
		if _, err := telemetry.Open(t.Context(), telemetry.Config{Endpoint: bad, Redact: strings.ToUpper, Log: slog.New(slog.DiscardHandler)}); err == nil {
			t.Errorf("%s was taken", bad)
		}
	}
}

// TestJSON reads the trace of a record as OTLP's JSON has it: identifiers in hexadecimal,
// numbers of 64 bits as text, enumerations as numbers.
func TestJSON(t *testing.T) {
	var out, again bytes.Buffer
	for _, w := range []*bytes.Buffer{&out, &again} {
		e := telemetry.NewJSON(w, "test")
		for i := range 2 {
			if err := e.Write(record(i)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if !bytes.Equal(out.Bytes(), again.Bytes()) || bytes.Count(out.Bytes(), []byte("\n")) != 2 {
		t.Errorf("the same records are\n%s\nand\n%s", &out, &again)
	}
	line, _, _ := bytes.Cut(out.Bytes(), []byte("\n"))
	for _, want := range []string{
		`"traceId":"01a1fb91ebc18c8e3660e2955d2e5000"`, `"name":"invoke_agent pi"`, `"startTimeUnixNano":"1795366800000000000"`, `"endTimeUnixNano":"1795366801500000000"`,
		`"kind":1`, `"status":{"code":2,"message":"agent_failed"}`, `{"key":"gen_ai.provider.name","value":{"stringValue":"gcp.gemini"}}`,
		`{"key":"gen_ai.usage.input_tokens","value":{"intValue":"5"}}`, `{"key":"sallyport.egress.refused","value":{"intValue":"4"}}`,
		`{"key":"sallyport.egress.bytes_up","value":{"intValue":"3"}}`, `{"key":"error.type","value":{"stringValue":"agent_failed"}}`,
	} {
		if !bytes.Contains(line, []byte(want)) {
			t.Errorf("it lacks %s:\n%s", want, line)
		}
	}
	if bytes.Contains(line, []byte("container.id")) {
		t.Errorf("it has what is not known: %s", line)
	}
}
