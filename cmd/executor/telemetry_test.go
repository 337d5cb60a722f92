package main

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sallyport/executor/dispatch"
)

// TestTelemetrySettings reads where telemetry goes, and with which headers.
func TestTelemetrySettings(t *testing.T) {
	file := filepath.Join(t.TempDir(), "headers")
	if err := os.WriteFile(file, []byte("X-Team: one\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := readHeaders(file); err == nil || !strings.Contains(err.Error(), file) {
		t.Errorf("a file that everybody can read: %v", err)
	}
	if err := os.Chmod(file, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ endpoint, headers, err string }{
		{"", "", ""},
		{"http://127.0.0.1:1", "", ""},
		{"http://127.0.0.1:1", "Authorization: Bearer a:b\n\nX-Team: one\n", ""},
		{"", "X-Team: one\n", "takes SALLYPORT_OTLP_ENDPOINT"},
		{"collector:4318", "", "SALLYPORT_OTLP_ENDPOINT"},
		{"http://127.0.0.1:1", "X-Team: one\nSECRET\n", "line 2 is no header"},
		{"http://127.0.0.1:1", "Two words: x\n", "line 1 is no header"},
	} {
		s := settings{OTLP: otlpSettings{Endpoint: tt.endpoint}}
		if tt.headers != "" {
			s.OTLP.HeadersFile = file
			if err := os.WriteFile(file, []byte(tt.headers), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		var config dispatch.Config
		end, err := setUpTelemetry(t.Context(), s, &config, slog.New(slog.DiscardHandler))
		switch {
		case tt.err != "":
			if err == nil || !strings.Contains(err.Error(), tt.err) || strings.Contains(err.Error(), "SECRET") {
				t.Errorf("%+v: %v", tt, err)
			}
			continue
		case err != nil:
			t.Errorf("%+v: %v", tt, err)
			continue
		}
		if told := config.Ended != nil; told != (tt.endpoint != "") {
			t.Errorf("%+v: the collector is told: %v", tt, told)
		}
		if tt.headers != "" && (config.Redact["Authorization"] != "Bearer a:b" || config.Redact["X-Team"] != "one" || len(config.Redact) != 2) {
			t.Errorf("%+v: redacted are %q", tt, config.Redact)
		}
		end()
	}
}
