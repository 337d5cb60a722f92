// Command dns measures the gate's DNS server side by side with unbound and
// dnsdist: the same queries to each, in turns, each server alone on one
// processor. It runs the gate's own binary with leases on loopback addresses, so
// it wants root, for port 53. See bench/README.md for what is measured.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"time"

	"sallyport/bench/report"
)

// limit bounds a whole measurement; it takes about one minute.
const limit = 8 * time.Minute

// about is the first line of the table.
const about = "The DNS server, side by side; each server alone on one processor."

func main() { os.Exit(report.Main(limit, run)) }

// A bench is what is measured, and how much of it.
type bench struct {
	gate, serverCPU string
	rounds, leases  int
	only            *regexp.Regexp // the turns that are taken
	flags           *report.Flags

	dir string // for the servers' files
	log io.Writer
}

func parse(args []string, stderr io.Writer) (*bench, error) {
	b := &bench{log: stderr}
	flags := report.NewFlags("bench dns", stderr, 3)
	flags.StringVar(&b.gate, "gate", "bin/gate", "the gate's `binary`")
	flags.StringVar(&b.serverCPU, "cpu", "0", "`processor` of the servers; the load should run on another")
	flags.IntVar(&b.leases, "leases", 200, "leased `cells`, at most 250, each of which is asked 1900 queries")
	only := flags.String("only", "", "take only turns whose name, like \"16 at a time, gate\", matches this `expression`")
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	var err error
	if b.only, err = regexp.Compile(*only); err != nil {
		return nil, err
	}
	if b.leases < 1 || b.leases > 250 {
		return nil, errors.New("a flag is out of range")
	}
	b.flags, b.rounds = flags, flags.Rounds
	return b, nil
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	b, err := parse(args, stderr)
	if err != nil {
		return err
	}
	if b.dir, err = os.MkdirTemp("", "sallyport-bench-"); err != nil {
		return err
	}
	defer os.RemoveAll(b.dir)
	figures, err := b.measure(ctx)
	if err != nil {
		return err
	}
	return b.flags.Finish(stdout, about, "gate: ", figures)
}

// A load is how queries are sent.
type load struct {
	name   string
	window int // queries that are outstanding
	each   int // queries to each path
}

// perLease is below the burst that a cell has, so that its rate does not matter.
const perLease = 1900

var loads = []load{{"128 at a time", 128, perLease}, {"16 at a time", 16, perLease}, {"one at a time", 1, perLease / 8}}

// measure gives each server its turns, a different one first in each round.
func (b *bench) measure(ctx context.Context) ([]report.Figure, error) {
	kinds, queries := b.kinds(), queries()
	names := make([]string, len(kinds))
	for i, k := range kinds {
		names[i] = k.name
	}
	cpu, rate := make([]map[string][]float64, len(loads)), make([]map[string][]float64, len(loads))
	for i := range loads {
		cpu[i], rate[i] = make(map[string][]float64), make(map[string][]float64)
	}
	for round := range b.rounds {
		for at, l := range loads {
			for i := range kinds {
				k := kinds[(i+round)%len(kinds)]
				if !b.only.MatchString(l.name + ", " + k.name) {
					continue
				}
				used, took, n, err := b.turn(ctx, k, l, queries)
				if err != nil {
					return nil, fmt.Errorf("%s, %s: %w", k.name, l.name, err)
				}
				cpu[at][k.name] = append(cpu[at][k.name], float64(used.Nanoseconds())/1e3/float64(n))
				rate[at][k.name] = append(rate[at][k.name], float64(n)/took.Seconds())
			}
		}
		fmt.Fprintf(b.log, "bench: round %d of %d is done\n", round+1, b.rounds)
	}
	var all []report.Figure
	for at, l := range loads {
		names := slices.DeleteFunc(slices.Clone(names), func(name string) bool { return len(cpu[at][name]) == 0 })
		if len(names) == 0 || names[0] != kinds[0].name {
			continue // there is no figure of ours
		}
		all = append(all, report.Among("DNS query, "+l.name+", server's CPU", "us", names, cpu[at])...)
		all = append(all, report.Among("DNS answers, "+l.name, "1/s", names, rate[at])...)
	}
	return all, nil
}

// turn starts a server, asks it on every path, and returns the processor time
// that it used, how long it took, and the answers.
func (b *bench) turn(ctx context.Context, k kind, l load, queries [][]byte) (used, took time.Duration, n int, err error) {
	s, err := k.start(ctx, b)
	if err != nil {
		return 0, 0, 0, err
	}
	defer s.stop()
	conns, err := s.dial(queries)
	defer closeAll(conns)
	if err != nil {
		return 0, 0, 0, err
	}
	before, err := cpuTime(s.cmd.Process.Pid)
	if err != nil {
		return 0, 0, 0, err
	}
	start := time.Now()
	for i, c := range conns {
		got, err := ask(c, l, queries, i*l.each)
		if err != nil {
			return 0, 0, 0, fmt.Errorf("path %d: %w", i, err)
		}
		n += got
	}
	took = time.Since(start)
	after, err := cpuTime(s.cmd.Process.Pid)
	return after - before, took, n, err
}
