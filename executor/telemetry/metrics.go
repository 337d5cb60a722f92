package telemetry

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	semconv "go.opentelemetry.io/otel/semconv/v1.41.0"
	"go.opentelemetry.io/otel/semconv/v1.41.0/genaiconv"

	"sallyport/executor/api"
	"sallyport/executor/audit"
)

// The boundaries that the conventions advise, in tokens and in seconds.
var (
	tokenBounds  = []float64{1, 4, 16, 64, 256, 1024, 4096, 16384, 65536, 262144, 1048576, 4194304, 16777216, 67108864}
	secondBounds = []float64{0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92}
	// A run takes longer than an answer, for which those are meant.
	longBounds = append(secondBounds, 163.84, 327.68, 655.36, 1310.72, 2621.44, 5242.88, 10485.76, 20971.52)
)

// instruments measure what models take. Where they are nil they measure nothing.
type instruments struct {
	tokens   genaiconv.ClientTokenUsage
	duration genaiconv.ClientOperationDuration
}

func newInstruments(m metric.Meter) (instruments, error) {
	var i instruments
	var err error
	if i.tokens, err = genaiconv.NewClientTokenUsage(m, metric.WithExplicitBucketBoundaries(tokenBounds...)); err != nil {
		return i, err
	}
	i.duration, err = genaiconv.NewClientOperationDuration(m, metric.WithExplicitBucketBoundaries(longBounds...))
	return i, err
}

// answered notes a model's answer.
func (i *instruments) answered(ctx context.Context, r audit.Record, ev api.Event, took time.Duration) {
	if i == nil {
		return
	}
	by := genaiconv.ProviderNameAttr(provider(r.Agent.Provider).Value.AsString())
	u, of := ev.Usage, i.of(r) // not by the model that the agent reports: it could report any number of them
	i.tokens.Record(ctx, u.InputTokens+u.CacheReadTokens+u.CacheCreationTokens, genaiconv.OperationNameChat, by, genaiconv.TokenTypeInput, of...)
	i.tokens.Record(ctx, u.OutputTokens, genaiconv.OperationNameChat, by, genaiconv.TokenTypeOutput, of...)
	i.duration.Record(ctx, took.Seconds(), genaiconv.OperationNameChat, by, of...)
}

// ran notes a run.
func (i *instruments) ran(ctx context.Context, r audit.Record, took time.Duration) {
	if i == nil {
		return
	}
	of := i.of(r)
	if r.Outcome.Code != "" {
		of = append(of, semconv.ErrorTypeKey.String(r.Outcome.Code))
	}
	by := genaiconv.ProviderNameAttr(provider(r.Agent.Provider).Value.AsString())
	i.duration.Record(ctx, took.Seconds(), genaiconv.OperationNameInvokeAgent, by, of...)
}

// of says whose run it was, and with which model.
func (i *instruments) of(r audit.Record) []attribute.KeyValue {
	of := []attribute.KeyValue{semconv.GenAIAgentName(r.Agent.Name)}
	if r.Agent.Model != "" {
		of = append(of, semconv.GenAIRequestModel(r.Agent.Model))
	}
	if r.Tenant != "" {
		of = append(of, attribute.String("sallyport.tenant", r.Tenant))
	}
	return of
}
