// Package telemetry tells an operator's collector of runs: traces and metrics over
// OTLP/HTTP, by the names of OpenTelemetry's conventions for generative AI. Export writes
// the traces of audit records as OTLP's JSON.
//
//	e, err := telemetry.Open(ctx, telemetry.Config{Endpoint: "http://collector:4318", ...})
//	e.Ended(record, events)  // of each run
//	err = e.Close(ctx)
//
// It is the executor that tells, once a run has its result, and never a sandbox. Nothing
// waits for the collector: what it does not take in time is dropped. What agents and
// models say to each other is not told.
package telemetry

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"net/url"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetrichttp"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/resource"
	"go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.41.0"
	"golang.org/x/time/rate"

	"sallyport/executor/api"
	"sallyport/executor/audit"
)

// A Config says where telemetry goes. All fields are required unless they say otherwise.
type Config struct {
	// Endpoint is the collector's base, such as http://collector:4318, to which
	// /v1/traces and /v1/metrics are added.
	Endpoint string
	// Headers go with each request, such as one with a key; nil for none.
	Headers map[string]string
	// Version is that of the build.
	Version string
	// Redact takes Headers out of a text, and what else is secret that is not taken out of
	// records and events already.
	Redact func(string) string
	Log    *slog.Logger
}

// Bounds of what waits for a collector.
const (
	maxWaiting     = 8192 // spans
	metricsPause   = 30 * time.Second
	requestTimeout = 10 * time.Second
)

// An Exporter tells a collector of runs. It is safe for concurrent use.
type Exporter struct {
	redact func(string) string
	spans  *trace.TracerProvider
	meters *metric.MeterProvider
	usage  instruments
}

// Open makes an exporter. It does not ask whether the collector is there.
func Open(ctx context.Context, c Config) (*Exporter, error) {
	base, err := url.Parse(c.Endpoint)
	if err != nil || base.Host == "" || base.Scheme != "http" && base.Scheme != "https" || base.RawQuery != "" || base.User != nil {
		return nil, fmt.Errorf("the collector %q is no URL such as http://collector:4318", c.Endpoint)
	}
	traces, err := otlptracehttp.New(ctx, otlptracehttp.WithEndpointURL(base.JoinPath("v1/traces").String()),
		otlptracehttp.WithHeaders(c.Headers), otlptracehttp.WithTimeout(requestTimeout))
	if err != nil {
		return nil, fmt.Errorf("export traces: %w", err)
	}
	metrics, err := otlpmetrichttp.New(ctx, otlpmetrichttp.WithEndpointURL(base.JoinPath("v1/metrics").String()),
		otlpmetrichttp.WithHeaders(c.Headers), otlpmetrichttp.WithTimeout(requestTimeout))
	if err != nil {
		return nil, fmt.Errorf("export metrics: %w", err)
	}
	// The library says so by its one handler, and an unreachable collector would say it
	// with every batch.
	sometimes := rate.Sometimes{First: 1, Interval: time.Minute}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) {
		sometimes.Do(func() { c.Log.Warn("the collector does not take telemetry", "error", c.Redact(err.Error())) })
	}))
	of := trace.WithResource(describe(c.Version))
	e := &Exporter{
		redact: c.Redact,
		spans:  trace.NewTracerProvider(of, trace.WithBatcher(traces, trace.WithMaxQueueSize(maxWaiting)), trace.WithIDGenerator(ids{})),
		meters: metric.NewMeterProvider(metric.WithResource(describe(c.Version)), metric.WithReader(metric.NewPeriodicReader(metrics, metric.WithInterval(metricsPause)))),
	}
	e.usage, err = newInstruments(e.meters.Meter(scope))
	return e, err
}

// scope names what made the telemetry.
const scope = "sallyport/executor"

// describe says who tells.
func describe(version string) *resource.Resource {
	return resource.NewWithAttributes(semconv.SchemaURL, semconv.ServiceName("sallyport"), semconv.ServiceVersion(version))
}

// Ended tells of a run by its audit record and its events, of which there may be none. It
// does not wait for the collector.
func (e *Exporter) Ended(r audit.Record, events iter.Seq[api.Event]) {
	t := &teller{tracer: e.spans.Tracer(scope), redact: e.redact, record: r, usage: &e.usage}
	t.tell(events)
}

// Close sends what waits, as far as it can be sent until ctx ends.
func (e *Exporter) Close(ctx context.Context) error {
	if err := errors.Join(e.spans.Shutdown(ctx), e.meters.Shutdown(ctx)); err != nil {
		return fmt.Errorf("send the last telemetry: %w", err)
	}
	return nil
}
