package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"golang.org/x/sync/errgroup"

	"sallyport/bench/report"
)

// patience bounds the wait for something to answer again.
const patience = time.Minute

// restarts kills the executor and measures the time until a run could start and until one
// has, beside the bare server, killed as well. The times from nothing to ready come from
// scripts/bench, which starts the stack.
func (b *bench) restarts(ctx context.Context, p *peer) ([]report.Figure, error) {
	taken, err := plan{rounds: 5, pause: 2 * time.Second}.interleave(ctx,
		contender{"the executor", b.restart}, contender{"the bare server", p.restart})
	if err != nil {
		return nil, err
	}
	const name = "bare net/http server, to its answer"
	figures := []report.Figure{
		report.Beside("executor killed, to ready", "ms", taken[0][0], name, taken[1][0]),
		report.Beside("executor killed, to a run's first byte", "ms", taken[0][1], name, taken[1][0]),
	}
	if len(b.ups) > 0 {
		figures = append(figures, report.Alone("stack from nothing to ready", "ms", b.ups))
	}
	return figures, nil
}

// restart kills the executor and has the engine start it. It returns the times from the
// kill until the executor says that a run could start, and until the first output of one that
// was asked for as soon as anybody listened; in ms.
func (b *bench) restart(ctx context.Context) ([]float64, error) {
	ids, err := b.containers(ctx, "executor")
	if err != nil {
		return nil, err
	}
	began := time.Now()
	if _, err := docker(ctx, "restart", "--time", "0", ids[0]); err != nil {
		return nil, err
	}
	if err := await(ctx, func() error { _, err := b.Health(ctx); return err }); err != nil {
		return nil, err
	}
	var ready, first float64
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		err := await(ctx, func() error {
			said, err := b.Ready(ctx)
			if err == nil && !said.Ready {
				err = errors.New("not ready")
			}
			return err
		})
		ready = ms(time.Since(began))
		return err
	})
	group.Go(func() error {
		before := ms(time.Since(began))
		values, err := b.startRun(ctx)
		if err == nil {
			first = before + values[0]
		}
		return err
	})
	return []float64{ready, first}, group.Wait()
}

// restart kills the peer and has the engine start it. It returns the time until it answers,
// in ms.
func (p *peer) restart(ctx context.Context) ([]float64, error) {
	began := time.Now()
	if _, err := docker(ctx, "restart", "--time", "0", p.id); err != nil {
		return nil, err
	}
	if err := p.locate(ctx); err != nil { // the engine publishes it on another port
		return nil, err
	}
	err := await(ctx, func() error { return p.record(ctx, "/", http.Header{}, nil) })
	return []float64{ms(time.Since(began))}, err
}

// await tries something until it succeeds.
func await(ctx context.Context, try func() error) error {
	for deadline := time.Now().Add(patience); ; {
		err := try()
		if err == nil {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("not after %v: %w", patience, err)
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(10 * time.Millisecond):
		}
	}
}
