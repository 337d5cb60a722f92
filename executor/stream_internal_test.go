package executor

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"sallyport/executor/store"
)

// TestHeartbeat has a stream say nothing for a while.
func TestHeartbeat(t *testing.T) {
	for sse, want := range map[bool]string{
		true:  ": still here\n\n: still here\n\nid: 1\nevent: text\ndata: {\"type\":\"text\"}\n\n: still here\n\n",
		false: "{\"type\":\"text\"}\n",
	} {
		synctest.Test(t, func(t *testing.T) {
			rec := httptest.NewRecorder()
			ctx, cancel := context.WithCancel(t.Context())
			s := &sender{ctx: ctx, w: rec, control: http.NewResponseController(rec), sse: sse}
			lines, taken, done := make(chan store.Line), make(chan struct{}), make(chan struct{})
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				s.loop(ctx, lines, taken, done)
			}()
			time.Sleep(40 * time.Second)
			lines <- store.Line{Seq: 1, JSON: []byte(`{"type":"text"}` + "\n")}
			<-taken
			time.Sleep(20 * time.Second)
			cancel()
			<-ended
			if got := rec.Body.String(); got != want {
				t.Errorf("sse %t: %q, want %q", sse, got, want)
			}
		})
	}
}

func TestNegotiate(t *testing.T) {
	for accept, want := range map[string]string{
		"":                                 jsonType,
		"*/*":                              jsonType,
		"application/json":                 jsonType,
		"application/*":                    jsonType,
		"text/*":                           sseType,
		"application/x-ndjson":             ndjsonType,
		"TEXT/Event-Stream; charset=utf-8": sseType,
		"application/json;q=0.5, text/event-stream": sseType,
		"*/*;q=0.1, application/x-ndjson;q=0.2":     ndjsonType,
		"application/json;q=0, */*":                 ndjsonType,
		"application/json;q=x":                      "",
		"text/html":                                 "",
		"nonsense":                                  "",
	} {
		r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(""))
		r.Header.Set("Accept", accept)
		if got, p := negotiate(r, jsonType, ndjsonType, sseType); got != want || (p != nil) != (want == "") {
			t.Errorf("Accept %q: %q, %v, want %q", accept, got, p, want)
		}
	}
}
