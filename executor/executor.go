// Package executor is the HTTP API of the server that runs agents: who may call, what
// the calls look like, and the streams of events. What the calls ask for is done by
// package dispatch. New makes an Executor, Serve or Handler serves its API, Shutdown ends
// it.
package executor

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"time"

	"sallyport/executor/caller"
	"sallyport/executor/dispatch"
)

// Config is what an Executor is made of.
type Config struct {
	dispatch.Config
	// Token is what callers must show; see caller.LoadToken.
	Token string
}

// An Executor serves the API of a dispatcher. It is safe for concurrent use.
type Executor struct {
	*dispatch.Dispatcher
	callers caller.Tokens
}

// New makes an executor on its state directory; see dispatch.New. Shutdown must follow.
func New(cfg Config) (*Executor, error) {
	var callers caller.Tokens
	if err := callers.Add(cfg.Token, caller.Operator()); err != nil {
		return nil, fmt.Errorf("configure the executor: %w", err)
	}
	hidden := map[string]string{"SALLYPORT_TOKEN": cfg.Token}
	maps.Copy(hidden, cfg.Redact)
	cfg.Redact = hidden
	d, err := dispatch.New(cfg.Config)
	if err != nil {
		return nil, err
	}
	return &Executor{Dispatcher: d, callers: callers}, nil
}

// The bounds in time of the server. There is none on a whole request: a caller
// may wait for a run for hours.
const (
	headerTimeout   = 10 * time.Second
	bodyTimeout     = 30 * time.Second
	idleTimeout     = 2 * time.Minute
	shutdownTimeout = 12 * time.Second
	closeTimeout    = 3 * time.Second
)

// Serve serves the API on ln until ctx ends, then ends the runs under way and
// shuts the executor down.
func (e *Executor) Serve(ctx context.Context, lns ...net.Listener) error {
	srv := &http.Server{
		Handler:           e.Handler(),
		ReadHeaderTimeout: headerTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    64 << 10,
	}
	served := make(chan error, len(lns))
	for _, ln := range lns {
		go func() { served <- srv.Serve(ln) }()
	}
	var err error
	select {
	case err = <-served:
		err = fmt.Errorf("serve the API: %w", err)
	case <-ctx.Done():
	}
	// Runs first: their callers get the results, which ends the streams. The record
	// that they get them from is closed last.
	sctx, cancel := context.WithTimeout(context.Background(), shutdownTimeout)
	defer cancel()
	drained := e.Drain(sctx)
	cctx, cancelClose := context.WithTimeout(context.Background(), closeTimeout)
	defer cancelClose()
	if srv.Shutdown(cctx) != nil {
		srv.Close() // callers that do not take their answer lose it
	}
	if drained != nil { // what still runs needs it
		return errors.Join(err, drained)
	}
	return errors.Join(err, e.Close())
}
