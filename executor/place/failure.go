package place

import (
	"context"
	"fmt"

	"sallyport/executor/api"
)

// StartFailed says that a sandbox could not be started, or not be made ready for a job.
func StartFailed(what string, err error) *api.Error {
	return &api.Error{Code: api.CodeStartFailed, Message: fmt.Sprintf("%s: %v", what, err), Retryable: true}
}

// Cause returns why ctx has ended, or otherwise where it has not.
func Cause(ctx context.Context, otherwise *api.Error) *api.Error {
	if ctx.Err() == nil {
		return otherwise
	}
	if e, ok := context.Cause(ctx).(*api.Error); ok {
		return e
	}
	return &api.Error{Code: api.CodeCancelled, Message: "the run was cancelled"}
}
