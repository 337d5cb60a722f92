package main

import (
	"io"
	"log/slog"
	"net/http"
	"testing"
)

// TestMetricsListener serves on an address of its own until it is ended, and
// without one not at all.
func TestMetricsListener(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	none, err := listenMetrics("")
	if err != nil || none.Close() != nil {
		t.Fatal(err)
	}
	none.serve(nil, log)()
	s, err := listenMetrics("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	end := s.serve(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "numbers") }), log)
	url := "http://" + s.Addr().String() + "/metrics"
	resp, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(resp.Body)
	resp.Body.Close()
	if string(body) != "numbers" {
		t.Errorf("%q, %v", body, err)
	}
	end()
	if resp, err := http.Get(url); err == nil {
		resp.Body.Close()
		t.Error("it is served after its end")
	}
	if _, err := listenMetrics("nowhere"); err == nil {
		t.Error("listens nowhere")
	}
}
