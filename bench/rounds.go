package main

import (
	"context"
	"fmt"
	"time"

	"sallyport/bench/report"
)

// A contender is one side of a comparison.
type contender struct {
	name string
	// take does the work once and returns a value for each thing that is measured,
	// always as many.
	take func(context.Context) ([]float64, error)
}

// A plan says how often contenders take their turns.
type plan struct {
	warmups int           // rounds before those that count
	rounds  int           // that count, at least 1
	pause   time.Duration // before each turn, so that what the one before left has settled
}

// interleave lets the contenders take turns, so that whatever else the machine does
// meets all of them alike; each round begins with another one. It returns, for
// each contender and each thing measured, the samples. The first turn that
// fails ends it.
func (p plan) interleave(ctx context.Context, all ...contender) ([][]report.Samples, error) {
	taken := make([][]report.Samples, len(all))
	for round := range p.warmups + p.rounds {
		for turn := range all {
			i := (round + turn) % len(all)
			select {
			case <-time.After(p.pause):
			case <-ctx.Done():
				return nil, context.Cause(ctx)
			}
			values, err := all[i].take(ctx)
			if err != nil {
				return nil, fmt.Errorf("%s, round %d: %w", all[i].name, round+1, err)
			}
			if round < p.warmups {
				continue
			}
			if taken[i] == nil {
				taken[i] = make([]report.Samples, len(values))
			}
			for n, v := range values {
				taken[i][n] = append(taken[i][n], v)
			}
		}
	}
	return taken, nil
}

// ms is a duration in milliseconds.
func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
