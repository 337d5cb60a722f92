package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"strings"

	"sallyport/executor/dispatch"
	"sallyport/executor/redact"
	"sallyport/executor/telemetry"
	"sallyport/internal/version"
)

// otlpSettings say where telemetry of runs goes.
type otlpSettings struct {
	// Endpoint is the collector's base; if empty, nobody is told of runs.
	Endpoint string `env:"OTLP_ENDPOINT"`
	// HeadersFile holds what goes with each request to it, such as a key.
	HeadersFile string `env:"OTLP_HEADERS_FILE"`
}

// setUpTelemetry has the collector told of each run. What it returns sends what is left.
func setUpTelemetry(ctx context.Context, s settings, config *dispatch.Config, log *slog.Logger) (end func(), err error) {
	if s.OTLP.Endpoint == "" {
		if s.OTLP.HeadersFile != "" {
			return nil, errors.New("settings: SALLYPORT_OTLP_HEADERS_FILE takes SALLYPORT_OTLP_ENDPOINT, too")
		}
		return func() {}, nil
	}
	headers, err := readHeaders(s.OTLP.HeadersFile)
	if err != nil {
		return nil, fmt.Errorf("settings: SALLYPORT_OTLP_HEADERS_FILE: %w", err)
	}
	secrets := map[string]string{}
	for _, known := range []map[string]string{config.Redact, headers} {
		maps.Copy(secrets, known)
	}
	config.Redact = secrets
	told, err := telemetry.Open(ctx, telemetry.Config{
		Endpoint: s.OTLP.Endpoint, Headers: headers, Version: version.String(), Redact: redact.New(secrets).String, Log: log,
	})
	if err != nil {
		return nil, fmt.Errorf("settings: SALLYPORT_OTLP_ENDPOINT: %w", err)
	}
	config.Ended = told.Ended
	return func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
		defer cancel()
		if err := told.Close(ctx); err != nil {
			log.Warn("telemetry of the last runs was not sent", "error", err)
		}
	}, nil
}

// readHeaders reads lines such as "Authorization: Bearer KEY".
func readHeaders(path string) (map[string]string, error) {
	if path == "" {
		return nil, nil
	}
	text, err := readSecret(path)
	if err != nil {
		return nil, err
	}
	headers := map[string]string{}
	lines := bufio.NewScanner(strings.NewReader(text))
	for n := 1; lines.Scan(); n++ {
		if strings.TrimSpace(lines.Text()) == "" {
			continue
		}
		name, value, ok := strings.Cut(lines.Text(), ":")
		name, value = strings.TrimSpace(name), strings.TrimSpace(value)
		if !ok || name == "" || value == "" || strings.ContainsAny(name, " \t") {
			return nil, fmt.Errorf("%s: line %d is no header: write a name, a colon and a value", path, n)
		}
		headers[name] = value
	}
	return headers, lines.Err()
}
