// Command gate measures the gate's tunnel side by side with nginx, haproxy and
// tcpproxy: the same bytes through each, in turns, each server alone on one processor. It
// runs the gate's own binary with leases on loopback addresses, so it wants
// root, for ports below 1024. See bench/README.md for what is measured.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"sallyport/bench/report"
)

// limit bounds a whole measurement; it takes about four minutes.
const limit = 12 * time.Minute

// about is the first line of the table.
const about = "The tunnel, side by side; each server alone on one processor."

func main() { os.Exit(report.Main(limit, run)) }

// aside is what this program does in processes of their own, by the first argument.
var aside = map[string]func(ctx context.Context, args []string, stdout io.Writer) error{
	farSideArg: farSide, calmSideArg: calmSide, probeArg: probe,
}

// A bench is what is measured, and how much of it.
type bench struct {
	gate, tcpproxy      string
	serverCPU           string
	rounds, leases      int
	flags               *report.Flags
	tunnels, many, rate int
	lasting, rest       time.Duration
	mib                 int64
	only                string

	self  string // this program
	dir   string // for the servers' files
	hello []byte
	log   io.Writer
}

func parse(args []string, stderr io.Writer) (*bench, error) {
	b := &bench{log: stderr}
	flags := report.NewFlags("bench gate", stderr, 3)
	flags.StringVar(&b.gate, "gate", "bin/gate", "the gate's `binary`")
	flags.StringVar(&b.tcpproxy, "tcpproxy", "bin/bench-tcpproxy", "the `binary` of bench/tcpproxy")
	flags.StringVar(&b.serverCPU, "cpu", "0", "`processor` of the servers; the load should run on another")
	flags.IntVar(&b.leases, "leases", 100, "leased `cells`, at most 200")
	flags.IntVar(&b.tunnels, "tunnels", 1000, "idle `tunnels` beside the peers")
	flags.IntVar(&b.many, "many", 10_000, "idle `tunnels` through the gate alone; 0 leaves them out")
	flags.IntVar(&b.rate, "rate", 1000, "new `connections` a second through the gate alone")
	flags.DurationVar(&b.lasting, "time", 4*time.Second, "`duration` of a turn of new connections")
	flags.DurationVar(&b.rest, "rest", 2*time.Second, "`duration` for which tunnels rest before they are weighed")
	flags.Int64Var(&b.mib, "mib", 2048, "`MiB` of a turn of bulk")
	flags.StringVar(&b.only, "only", "", "`figure` to take alone: idle, connections, bulk, latency, beside or many")
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	if b.leases < 1 || b.leases > 200 || b.tunnels < 1 || b.mib < 16 {
		return nil, errors.New("a flag is out of range")
	}
	b.flags, b.rounds = flags, flags.Rounds
	return b, nil
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	if len(args) > 0 && aside[args[0]] != nil {
		return aside[args[0]](ctx, args[1:], stdout)
	}
	b, err := parse(args, stderr)
	if err != nil {
		return err
	}
	if err := b.raiseLimit(); err != nil {
		return err
	}
	if b.dir, err = os.MkdirTemp("", "sallyport-bench-"); err != nil {
		return err
	}
	defer os.RemoveAll(b.dir)
	b.hello = clientHello(hostName)
	if err := b.startFarSides(ctx); err != nil {
		return err
	}
	figures, err := b.measure(ctx)
	if err != nil {
		return err
	}
	return b.flags.Finish(stdout, about, "gate: ", figures)
}

// What 10,000 tunnels need of descriptors: the gate has two ends of each, and its
// listeners. Clients and upstream are processes with bounds of their own.
const (
	wantFiles  = 25_000
	otherFiles = 800
)

// raiseLimit takes as many descriptors as it may, for the servers as well. It
// makes do with fewer tunnels where they do not suffice.
func (b *bench) raiseLimit() error {
	var r unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &r); err != nil {
		return fmt.Errorf("bound on descriptors: %w", err)
	}
	want := unix.Rlimit{Cur: wantFiles, Max: max(wantFiles, r.Max)}
	if r.Max >= wantFiles || unix.Setrlimit(unix.RLIMIT_NOFILE, &want) != nil {
		want = unix.Rlimit{Cur: r.Max, Max: r.Max}
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &want); err != nil {
			return fmt.Errorf("bound on descriptors: %w", err)
		}
	}
	if most := (int(want.Cur) - otherFiles) / 2; b.many > most {
		fmt.Fprintf(b.log, "bench: %d descriptors allow a gate %d tunnels, not %d\n", want.Cur, most, b.many)
		b.many = most
	}
	return nil
}
