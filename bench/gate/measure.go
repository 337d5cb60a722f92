package main

import (
	"context"
	"fmt"
	"time"

	"sallyport/bench/report"
)

// samples are of one figure, by the server's name.
type samples map[string][]float64

// A turn is what is done with one running server.
type turn struct {
	name    string
	metrics [][2]string // metric and unit
	take    func(*server) ([]float64, error)
}

// turns are those that all servers take, each with a server of its own.
func (b *bench) turns() []turn {
	return []turn{
		{"idle", [][2]string{{"idle tunnel, resident", "KiB"}, {"idle tunnel, descriptors", ""}, {"pipe ends, all idle tunnels", ""}},
			func(s *server) ([]float64, error) {
				h, err := b.idle(s, b.tunnels)
				return []float64{h.rss, h.fds, h.pipes}, err
			}},
		{"connections", [][2]string{{"new connection, server's CPU", "us"}},
			func(s *server) ([]float64, error) {
				v, err := b.churn(s, b.lasting)
				return []float64{v}, err
			}},
		{"bulk", [][2]string{{"bulk down, 16 streams, server's CPU", "s/GiB"}, {"bulk up, 16 streams, server's CPU", "s/GiB"}},
			func(s *server) ([]float64, error) {
				down, err := b.bulk(s, opDown, b.mib<<20)
				if err != nil {
					return nil, err
				}
				up, err := b.bulk(s, opUp, b.mib<<20)
				return []float64{down, up}, err
			}},
		{"latency", [][2]string{{"new connection, added to the median", "us"}, {"new connection, added to the p99", "us"}},
			func(s *server) ([]float64, error) {
				p50, p99, err := b.latency(s, 1000)
				return []float64{p50, p99}, err
			}},
		{"beside", [][2]string{{"new connection beside bulk, median", "ms"}, {"new connection beside bulk, p99", "ms"}, {"... the bulk meanwhile", "GiB/s"}},
			func(s *server) ([]float64, error) { return b.beside(s, b.lasting) }},
	}
}

func (b *bench) measure(ctx context.Context) (all []report.Figure, err error) {
	kinds := b.kinds()
	names := make([]string, len(kinds))
	for i, k := range kinds {
		names[i] = k.name
	}
	for _, t := range b.turns() {
		if b.only != "" && b.only != t.name {
			continue
		}
		fmt.Fprintf(b.log, "bench: measuring %s\n", t.name)
		kinds, names := kinds, names
		if t.name == "beside" { // where the load has not enough of one processor
			kinds, names = append(kinds[:len(kinds):len(kinds)], noServer), append(names[:len(names):len(names)], noServer.name)
		}
		got, err := b.rotate(ctx, kinds, t)
		if err != nil {
			return nil, fmt.Errorf("measure %s: %w", t.name, err)
		}
		for i, m := range t.metrics {
			all = append(all, report.Among(m[0], m[1], names, got[i])...)
		}
	}
	if b.many > 0 && (b.only == "" || b.only == "many") {
		fmt.Fprintf(b.log, "bench: measuring %d tunnels\n", b.many)
		crowd, err := b.crowd(ctx)
		if err != nil {
			return nil, fmt.Errorf("measure many tunnels: %w", err)
		}
		all = append(all, crowd...)
	}
	return all, nil
}

// rotate gives each kind of server its turns; a different one begins each round.
func (b *bench) rotate(ctx context.Context, kinds []kind, t turn) ([]samples, error) {
	got := make([]samples, len(t.metrics))
	for i := range got {
		got[i] = samples{}
	}
	for round := range b.rounds {
		for i := range kinds {
			k := kinds[(i+round)%len(kinds)]
			values, err := b.one(ctx, k, t)
			if err != nil {
				return nil, err
			}
			for j, v := range values {
				got[j][k.name] = append(got[j][k.name], v)
			}
		}
	}
	return got, ctx.Err()
}

func (b *bench) one(ctx context.Context, k kind, t turn) ([]float64, error) {
	s, err := k.start(ctx, b)
	if err != nil {
		return nil, err
	}
	defer s.stop(ctx)
	if err := s.await(b.hello); err != nil {
		return nil, err
	}
	values, err := t.take(s)
	if err != nil {
		return nil, fmt.Errorf("%s: %w\n%s", k.name, err, tail(s.log.String()))
	}
	return values, nil
}

// crowd loads the gate alone with as many tunnels as it should bear, opens new
// ones all the while, ends them all and looks at what is left.
func (b *bench) crowd(ctx context.Context) ([]report.Figure, error) {
	s, err := startGate(ctx, b)
	if err != nil {
		return nil, err
	}
	defer s.stop(ctx)
	if err := s.await(b.hello); err != nil {
		return nil, err
	}
	before, err := holds(s.pid())
	if err != nil {
		return nil, err
	}
	conns, err := b.open(s, b.many)
	defer closeAll(conns)
	if err != nil {
		return nil, err
	}
	time.Sleep(b.rest)
	full, err := holds(s.pid())
	if err != nil {
		return nil, err
	}
	p99, err := b.pace(ctx, s, b.rate, 10*time.Second)
	if err != nil {
		return nil, err
	}
	closeAll(conns)
	left, err := b.settle(s, before)
	if err != nil {
		return nil, err
	}
	if err := s.close(ctx); err != nil {
		return nil, err
	}
	s.close = nil
	goroutines, tunnel := s.goroutines()
	about := fmt.Sprintf("%d idle tunnels of %d cells", b.many, b.leases)
	return []report.Figure{
		report.Alone(about+", resident each", "KiB", []float64{(full.rss - before.rss) / float64(b.many)}),
		report.Alone(about+fmt.Sprintf(", then %d new a second for 10 s, p99", b.rate), "ms", []float64{p99}),
		report.Alone("descriptors left after these", "", []float64{left.fds - before.fds}),
		report.Alone("... of which ends of pooled pipes", "", []float64{left.pipes - before.pipes}),
		report.Alone("goroutines left after the leases", "", []float64{float64(goroutines)}),
		report.Alone("... of which the tunnel's", "", []float64{float64(tunnel)}),
	}, nil
}

// settle waits until a server has closed what its clients have, but for pipes.
func (b *bench) settle(s *server, before held) (held, error) {
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(100 * time.Millisecond) {
		h, err := holds(s.pid())
		if err != nil || h.fds-h.pipes <= before.fds-before.pipes || time.Now().After(deadline) {
			return h, err
		}
	}
}
