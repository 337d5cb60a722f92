// Command bench measures a stack that runs, each figure in turns with a peer that
// does the same work without the stack, and prints a table of medians. It needs
// the stack on the demo's internet that scripts/bench starts, and docker(1). See
// README.md for what is measured and how to read it.
//
//	bench [flags]   measures
//	bench serve     is the peer of the API: an HTTP server that repeats answers
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strconv"
	"strings"
	"time"

	"sallyport/bench/report"
	"sallyport/executor/client"
)

// limit bounds a whole measurement; it takes about two minutes.
const limit = 8 * time.Minute

func main() { os.Exit(report.Main(limit, run)) }

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	if len(args) == 1 && args[0] == "serve" {
		return serve(ctx, peerPort)
	}
	b, err := parse(args, stderr)
	if err != nil {
		return err
	}
	figures, err := b.measure(ctx)
	if err != nil {
		return err
	}
	about, err := b.about(ctx)
	if err != nil {
		return err
	}
	return b.flags.Finish(stdout, about, "", figures)
}

// A bench is what is measured, and how much of it.
type bench struct {
	*client.Client
	stack    string         // the name of the stack, which its containers and networks bear
	image    string         // of the sandboxes, and of their peers
	executor string         // the executor's image, which the API's peer runs in
	resolver string         // of the demo's internet
	rounds   int            // of starts; the other figures take fewer
	ups      report.Samples // times from nothing to ready, in ms
	only     *regexp.Regexp // the steps that are taken
	flags    *report.Flags
	log      io.Writer
}

func parse(args []string, stderr io.Writer) (*bench, error) {
	b := &bench{Client: &client.Client{}, log: stderr}
	flags := report.NewFlags("bench", stderr, 15)
	flags.StringVar(&b.Addr, "url", "http://127.0.0.1:7292", "the executor's `URL`")
	tokenFile := flags.String("token-file", "", "`file` with the executor's token")
	flags.StringVar(&b.stack, "stack", "sallyport-bench", "`name` of the stack")
	flags.StringVar(&b.image, "image", "sallyport/agent:dev", "`image` of the sandboxes")
	flags.StringVar(&b.executor, "executor-image", "sallyport/executor:dev", "`image` that the API's peer runs in")
	flags.StringVar(&b.resolver, "resolver", "", "`address` of the resolver of the demo's internet")
	only := flags.String("only", "", "take only the steps whose name, like \"restarts\", matches this `expression`")
	flags.Func("up", "`ms` that the stack took from nothing to ready; may be given several times", func(v string) error {
		took, err := strconv.ParseFloat(v, 64)
		b.ups = append(b.ups, took)
		return err
	})
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	var err error
	if b.only, err = regexp.Compile(*only); err != nil {
		return nil, fmt.Errorf("-only: %w", err)
	}
	if *tokenFile == "" || b.resolver == "" {
		return nil, errors.New("-token-file and -resolver are required")
	}
	b.flags, b.rounds = flags, flags.Rounds
	token, err := os.ReadFile(*tokenFile)
	if err != nil {
		return nil, fmt.Errorf("read the token: %w", err)
	}
	b.Token = strings.TrimSpace(string(token))
	return b, nil
}

// measure takes all figures: memory first, while nothing has happened yet, and
// again at the end.
func (b *bench) measure(ctx context.Context) (all []report.Figure, err error) {
	peer, err := b.startPeer(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, peer.stop()) }()
	steps := []struct {
		name string
		take func(context.Context) ([]report.Figure, error)
	}{
		{"memory at rest", func(ctx context.Context) ([]report.Figure, error) { return b.memory(ctx, peer, "at rest") }},
		{"starts", b.starts},
		{"requests", func(ctx context.Context) ([]report.Figure, error) { return b.requests(ctx, peer) }},
		{"the tunnel", b.tunnel},
		{"memory afterwards", func(ctx context.Context) ([]report.Figure, error) { return b.memory(ctx, peer, "after all this") }},
		{"restarts", func(ctx context.Context) ([]report.Figure, error) { return b.restarts(ctx, peer) }},
	}
	for _, step := range steps {
		if !b.only.MatchString(step.name) {
			continue
		}
		fmt.Fprintf(b.log, "bench: measuring %s\n", step.name)
		figures, err := step.take(ctx)
		if err != nil {
			return nil, fmt.Errorf("measure %s: %w", step.name, err)
		}
		all = append(all, figures...)
	}
	return all, nil
}
