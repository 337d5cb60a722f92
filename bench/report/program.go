package report

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// Main runs a program that measures until it ends, until limit or until a signal,
// and returns its exit code.
func Main(limit time.Duration, run func(ctx context.Context, args []string, stdout, stderr io.Writer) error) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	switch err := run(ctx, os.Args[1:], os.Stdout, os.Stderr); {
	case errors.Is(err, flag.ErrHelp):
		return 2
	case err != nil:
		fmt.Fprintln(os.Stderr, "bench:", err)
		return 1
	}
	return 0
}

// Flags are those that every program has, and its own.
type Flags struct {
	*flag.FlagSet
	Rounds int    // at least 1
	Out    string // file of the results
}

// NewFlags makes the flags of a program, which adds its own before Parse.
func NewFlags(name string, stderr io.Writer, rounds int) *Flags {
	f := &Flags{FlagSet: flag.NewFlagSet(name, flag.ContinueOnError)}
	f.SetOutput(stderr)
	f.IntVar(&f.Rounds, "rounds", rounds, "`number` of turns that each side gets")
	f.StringVar(&f.Out, "out", "bench/out/results.json", "`file` that the results are added to")
	return f
}

// Parse reads the flags; there are no arguments.
func (f *Flags) Parse(args []string) error {
	if err := f.FlagSet.Parse(args); err != nil {
		return err
	}
	if f.NArg() > 0 {
		return fmt.Errorf("%s takes no argument %q", f.Name(), f.Arg(0))
	}
	if f.Rounds < 1 {
		return errors.New("-rounds must be at least 1")
	}
	return nil
}

// Finish prints the figures and adds them to the file of the results. what is put
// in front of the name of each, so that those of all programs can be told apart.
func (f *Flags) Finish(w io.Writer, about, what string, figures []Figure) error {
	for i := range figures {
		figures[i].Metric = what + figures[i].Metric
	}
	if err := Print(w, about, figures); err != nil {
		return fmt.Errorf("print the table: %w", err)
	}
	return Add(f.Out, figures)
}
