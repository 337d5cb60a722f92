package task

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"sallyport/executor/agent"
	"sallyport/executor/api"
	"sallyport/executor/place"
	"sallyport/executor/plan"
	"sallyport/executor/redact"
	"sallyport/executor/secrets"
)

// Secrets has the values of secrets; secrets.Sources do.
type Secrets interface {
	Get(ctx context.Context, name string) (string, error)
}

// secretTimeout bounds the reading of all secrets of a task.
const secretTimeout = 10 * time.Second

// takeSecrets reads the secrets of a plan, keys as well as others, of which nothing that
// is printed tells from now on. Without all of them nothing is started.
func (r *Runner) takeSecrets(ctx context.Context, p *plan.Plan, redactor *redact.Redactor) ([]agent.Secret, error) {
	ctx, cancel := context.WithTimeout(ctx, secretTimeout)
	defer cancel()
	given := slices.Clone(p.Input.Secrets)
	for i := range given {
		s := &given[i]
		value, err := r.Secrets.Get(ctx, s.Name)
		if err != nil {
			return nil, err
		}
		redactor.Learn(s.Name, secrets.Text(value))
		if s.Value = value; !s.File {
			s.Value = secrets.Text(value)
		}
	}
	return given, nil
}

// reasons are what a caller is told; where the operator keeps secrets is in the log.
var reasons = map[secrets.Reason]string{
	secrets.Unknown:    "no provider of the executor's has it",
	secrets.Ambiguous:  "two providers of the executor's have it",
	secrets.Unreadable: "its provider cannot give it now",
	secrets.Unfit:      "its value is too short, too long or no text",
}

// secretFailed says what it means for the run that a secret is not to be had.
func (t *task) secretFailed(ctx context.Context, err error) *api.Error {
	t.rec.log.Error("a secret is not to be had", "error", err)
	failure := &api.Error{Code: api.CodeSecret, Message: "a secret of the run is not to be had"}
	var e *secrets.Error
	if errors.As(err, &e) {
		failure.Message = fmt.Sprintf("the secret %s is not to be had: %s", e.Name, reasons[e.Reason])
		failure.Retryable = e.Reason == secrets.Unreadable
		failure.Details = map[string]any{"secret": e.Name, "reason": string(e.Reason)}
	}
	return place.Cause(ctx, failure)
}
